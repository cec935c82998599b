"""Query strings and headers of requests: what clients say in them goes upstream too.

Names of parameters and headers stay, and so does what belongs to the protocol, to a library or to a
credential.
"""

import json
import re
from typing import NamedTuple
from urllib.parse import quote, unquote_plus

from proxy.credentials import RawFields

_SECRET = rb".*(?:key|token|auth|authorization|secret|cookie|credential|signature|sig)s?(?:-.*)?"
_HEADERS = re.compile(
    rb"(?:anthropic|cache|content|if|openai|sec|x-amz|x-stainless)-.*|accept(?:-.*)?|connection|date|"
    rb"expect|host|keep-alive|origin|pragma|te|trailer|transfer-encoding|upgrade|user-agent|via|"
    rb"idempotency-key|traceparent|tracestate|x-goog-(?:api-client|user-project)|x-request-id|"
    + _SECRET
)
_PARAMETERS = re.compile(rb"alt|api-version|beta|prettyprint|" + _SECRET.replace(b"-", b"[-_]"))


class HeadTexts(NamedTuple):
    """What the head of a request says, by the names of its parameters and headers."""

    query: tuple[tuple[str, str], ...]
    """All pairs, of which some say something."""
    headers: tuple[tuple[str, str], ...]
    """Those headers that may say something."""

    def written(self) -> str:
        """Return them as JSON."""
        said = [{name: value} for name, value in self.query if not _is_parameter(name)]
        return json.dumps([*said, *({name: value} for name, value in self.headers)])

    def told(self, values: list[dict[str, str]]) -> "HeadTexts":
        """Return them with other values, given in the order in which they were written."""
        left = iter([next(iter(one.values())) for one in values])
        query = tuple(
            (name, value if _is_parameter(name) else next(left)) for name, value in self.query
        )
        return HeadTexts(query, tuple((name, next(left)) for name, _ in self.headers))

    def path(self, path: bytes) -> bytes:
        """Return a path with these parameters for its own."""
        bare, mark, _ = path.partition(b"?")
        pairs = [
            quote(value) if name.startswith(_NAMELESS) else f"{quote(name)}={quote(value)}"
            for name, value in self.query
        ]
        return bare + mark + "&".join(pairs).encode()


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
    said = any(not _is_parameter(name) for name, _ in query)
    if not headers and not said:
        return None
    listed = tuple((_text(name), _text(b", ".join(values))) for name, values in headers.items())
    return HeadTexts(query, listed)


def _pair(one: bytes) -> tuple[str, str]:
    name, mark, value = one.decode("utf-8", "surrogateescape").partition("=")
    return (unquote_plus(name), unquote_plus(value)) if mark else (_NAMELESS, unquote_plus(name))


def _is_parameter(name: str) -> bool:
    """Whether a parameter belongs to the protocol."""
    return _PARAMETERS.fullmatch(name.lower().encode("utf-8", "replace")) is not None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
