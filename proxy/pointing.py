"""Pointing a request of the base-URL gateway at an upstream of its route."""

from mitmproxy import http

from proxy.credentials import RawFields
from proxy.routing import Rewritten, rewrite_headers
from proxy.target import Target


class Pointing:
    """A request as its client sent it, to be pointed at one upstream after the other."""

    __slots__ = ("_fields", "_key_header", "_rest", "_session", "tried")

    def __init__(
        self, fields: RawFields, key_header: bytes | None, rest: bytes, session: bytes | None
    ) -> None:
        self._fields = fields
        self._key_header = key_header
        self._rest = rest
        self._session = session
        self.tried: list[Target] = []
        """The upstreams that it was pointed at."""

    def at(self, target: Target, request: http.Request) -> tuple[Rewritten, bytes]:
        """Point the request at an upstream; return its headers and its path there."""
        self.tried.append(target)
        upstream = target.upstream
        request.data.host, request.data.port = upstream.host, upstream.port
        request.data.scheme = upstream.scheme.encode()
        session = self._session
        rewritten = rewrite_headers(
            self._fields,
            host=target.authority,
            key_header=self._key_header,
            credential=target.credential,
            added=((b"x-headrace-url-session", session),) if session is not None else (),
        )
        return rewritten, upstream.path.encode() + self._rest
