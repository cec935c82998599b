"""What the gateway notes on a request for the HTTP/1 layer to act on."""

from typing import Protocol

from mitmproxy import http

from proxy.credentials import RawFields
from proxy.responses import Shape

_SHAPE = "headrace_shape"
_WAY = "headrace_way"
_EXPECTED = "headrace_expected"


class Way(Protocol):
    """Where a request goes; asked before any of its bytes are sent."""

    def connected(self) -> None:
        """The connection stands, the request is about to be sent."""

    def another(self) -> bool:
        """Point the request at another upstream; False where there is none left."""


def mark_shape(request: http.Request, shape: Shape) -> None:
    """Remember in whose shape errors of this request are to be answered."""
    setattr(request, _SHAPE, shape)


def shape_of_errors(request: http.Request | None) -> Shape:
    """Return in whose shape errors of a request are answered."""
    shape: Shape = getattr(request, _SHAPE, Shape.OPENAI)
    return shape


def mark_way(request: http.Request, way: Way) -> None:
    """Let a request's connection be made this way."""
    setattr(request, _WAY, way)


def forget_way(request: http.Request) -> None:
    """Let go of a request's way once it is over."""
    setattr(request, _WAY, None)


def way_of(request: http.Request) -> Way | None:
    """Return the way of a request, if it has one of its own."""
    way: Way | None = getattr(request, _WAY, None)
    return way


def keep_expectation(request: http.Request) -> None:
    """Keep the headers of a request that waits for ``100``: mitmproxy takes ``Expect`` out."""
    setattr(request, _EXPECTED, request.headers.fields)


def give_expectation_back(request: http.Request) -> None:
    """Put kept headers back, order and all: the upstream decides about ``100``."""
    fields: RawFields | None = getattr(request, _EXPECTED, None)
    if fields is not None:
        request.headers.fields = fields


def forget_expectation(request: http.Request) -> None:
    """Drop kept headers: the request has others now, ``Expect`` among them."""
    setattr(request, _EXPECTED, None)
