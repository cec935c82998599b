"""Paths, query strings and headers of requests: what clients say in them goes upstream too.

Names of parameters and headers stay, and so does what belongs to the protocol, to a library or to a
credential. Of a path plain words stay: names of interfaces, models and ids.
"""

import json
import re
from typing import NamedTuple
from urllib.parse import quote, unquote, unquote_plus

from proxy.clients.credentials import RawFields
from trajectory.dialects.hints import USER_HEADERS
from trajectory.exchange import Headers

_MARK = rb"(?:key|token|auth|authorization|secret|cookie|credential|signature|sig)s?"
_SECRET = (
    rb".*" + _MARK + rb"|(?:.*-)?(?:api)?" + _MARK + rb"-"
    # Proxies that sign people in say so under such names: x-auth-request-email.
    rb"(?!.*(?:user|mail|name|owner|person|subject|identi|login|group|meta)).*"
)
"""How names of credentials look."""
_HEADERS = re.compile(
    rb"(?:anthropic|cache|content|if|openai|sec|x-amz|x-stainless)-(?!safety-identifier|user).*|"
    rb"accept(?:-.*)?|connection|date|"
    rb"expect|host|keep-alive|origin|pragma|te|trailer|transfer-encoding|upgrade|user-agent|via|"
    rb"idempotency-key|traceparent|tracestate|x-goog-(?:api-client|user-project)|x-request-id|"
    + _SECRET
)
_WORD = re.compile(r"(?!.*\d{7})[\w.:~$-]*", re.ASCII)
"""A piece of a path that says nothing."""
_OF_PEOPLE = frozenset(name.encode() for name in USER_HEADERS)
_PARAMETERS = re.compile(rb"alt|api-version|beta|prettyprint|" + _SECRET.replace(b"-", b"[-_]"))


class HeadTexts(NamedTuple):
    """What the head of a request says, by the names of its parameters and headers."""

    query: tuple[tuple[str, str], ...]
    """All pairs, of which some say something."""
    headers: tuple[tuple[str, str], ...]
    """Those headers that may say something."""
    pieces: tuple[tuple[int, str], ...]
    """Those pieces of the path that may, each with its place, counted from the path's end."""

    def written(self) -> str:
        """Return them as JSON."""
        said = [{name: value} for name, value in self.query if not _is_parameter(name)]
        said += [{name: value} for name, value in self.headers]
        return json.dumps([*said, *({"path": piece} for _, piece in self.pieces)])

    def told(self, values: list[dict[str, str]]) -> "HeadTexts":
        """Return them with other values, given in the order in which they were written."""
        left = iter([next(iter(one.values())) for one in values])
        query = tuple(
            (name, value if _is_parameter(name) else next(left)) for name, value in self.query
        )
        headers = tuple((name, next(left)) for name, _ in self.headers)
        return HeadTexts(query, headers, tuple((at, next(left)) for at, _ in self.pieces))

    def path(self, path: bytes) -> bytes:
        """Return a path with these pieces and parameters for its own."""
        bare, mark, _ = path.partition(b"?")
        if self.pieces:
            parts = bare.split(b"/")
            for at, piece in self.pieces:
                parts[at] = quote(piece, safe=_IN_PATHS, errors="surrogateescape").encode()
            bare = b"/".join(parts)
        pairs = [
            quote(value) if name.startswith(_NAMELESS) else f"{quote(name)}={quote(value)}"
            for name, value in self.query
        ]
        return bare + mark + "&".join(pairs).encode()


_IN_PATHS = "~:$@!*'(),;=&+"
_NAMELESS = "?"
"""Begins the name of a parameter that has only a value."""


def head_texts(path: bytes, fields: RawFields, asked: RawFields) -> HeadTexts | None:
    """Return what a head says upstream in its client's words; None where it says nothing.

    Args:
        path: with its query.
        fields: headers that go upstream.
        asked: headers as the client sent them.
    """
    query = tuple(_pair(one) for one in path.partition(b"?")[2].split(b"&") if one)
    own = {(name.lower(), value) for name, value in asked}
    headers: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        lower = name.lower()
        if _HEADERS.fullmatch(lower) is None and (lower, value) in own:
            headers.setdefault(lower, []).append(value)
    parts = [
        unquote(_text(one), errors="surrogateescape") for one in path.partition(b"?")[0].split(b"/")
    ]
    pieces = tuple(
        (at - len(parts), one) for at, one in enumerate(parts) if not _WORD.fullmatch(one)
    )
    said = any(not _is_parameter(name) for name, _ in query)
    if not (headers or said or pieces):
        return None
    listed = tuple((_text(name), _text(b", ".join(values))) for name, values in headers.items())
    return HeadTexts(query, listed, pieces)


def headers_of_people(asked: RawFields) -> Headers:
    """Return the headers of a client that may name who uses the application, as their capture has them."""
    lower = ((name.lower(), value) for name, value in asked)
    return tuple((name.decode(), _text(value)) for name, value in lower if name in _OF_PEOPLE)


def _pair(one: bytes) -> tuple[str, str]:
    name, mark, value = one.decode("utf-8", "surrogateescape").partition("=")
    return (unquote_plus(name), unquote_plus(value)) if mark else (_NAMELESS, unquote_plus(name))


def _is_parameter(name: str) -> bool:
    """Whether a parameter belongs to the protocol."""
    return _PARAMETERS.fullmatch(name.lower().encode("utf-8", "replace")) is not None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
