"""Pointing a request at an upstream: where it goes, and what of a route's key goes with it."""

from mitmproxy import http

from proxy.credentials import RawFields
from proxy.rewriting import URL_SESSION, Rewritten, rewrite_headers
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
            added=((URL_SESSION, session),) if session is not None else (),
        )
        return rewritten, upstream.path.encode() + self._rest


def key_giver(target: Target, flow: http.HTTPFlow) -> Target | None:
    """Return a target that has a key to give and has proved, where there is TLS, that it is it.

    The upstream's certificate is held against the name in the client's greeting: it may be
    another one than the client connected to, as of a neighbour behind the same front.
    """
    proved = (flow.client_conn.sni or flow.request.data.host).lower()
    return target if target.credential is not None and proved == target.upstream.host else None


def at_its_host(fields: RawFields, key_header: bytes | None, given: Target | None) -> Rewritten:
    """Rewrite a request that goes where its client wanted; beside a key no other host is named."""
    return rewrite_headers(
        fields,
        host=given.authority if given is not None else None,
        key_header=key_header,
        credential=given.credential if given is not None else None,
    )
