"""Requests rewritten for their upstream: where they go, how they are sent, and how they are kept."""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from proxy.clients.credentials import PROVIDER_HEADERS, RawFields, holds_client_key
from proxy.routes.target import Target

OWN_HEADERS = b"x-headrace-"
"""Beginning of the names of Headrace's own headers."""
URL_SESSION = b"x-headrace-url-session"
"""The gateway alone writes it, for the capture: the session in the request's path."""
END_USER = b"x-headrace-end-user"
"""By which a client names its end user, and the gateway for the capture where the body no longer does."""
_TASK = b"x-headrace-task"
"""The same, for the task of a begun session."""
_HOP = frozenset({b"proxy-authorization", b"proxy-connection", b"http2-settings"})
_EXTENSIONS = b"sec-websocket-extensions"
"""Compression would let a few bytes of a message be a great many here, where it is recorded."""
_SUBPROTOCOLS = b"sec-websocket-protocol"
_HEADS_ONLY = _HOP | {
    b"host",
    b"connection",
    b"content-length",
    b"expect",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
}
"""What says where a request goes and where it ends has no place behind its body."""
_REWRITTEN = _HOP | PROVIDER_HEADERS | {_EXTENSIONS, _SUBPROTOCOLS, b"host", b"upgrade"}
"""What :func:`rewrite_headers` looks at by name, beside Headrace's own headers."""
_CHECKSUMS = (b"x-amz-checksum-", b"content-digest", b"repr-digest", b"digest", b"content-md5")


def take_session(path: bytes) -> tuple[bytes, bytes | None]:
    """Take ``/s/<session>`` off the beginning of a path; return the rest and the session."""
    if not path.startswith(b"/s/"):
        return path, None
    session, slash, rest = path[3:].partition(b"/")
    if not slash or not session:
        return path, None
    return b"/" + rest, session


def without_client_keys(path: bytes) -> bytes:
    """Return a path without the parameters of its query that hold a Headrace key."""
    base, mark, query = path.partition(b"?")
    if b"hr" not in query and b"%" not in query:
        return path
    kept = [each for each in query.split(b"&") if not holds_client_key(each)]
    return base + mark + b"&".join(kept) if kept else base


def rewrite_trailers(fields: RawFields, *, keyed: bool) -> RawFields:
    """Return the trailers that go upstream; beside a route's key only checksums of the body do.

    A server may take a trailer for a header, so none may say what the head was not let say.
    """
    kept = []
    for name, value in fields:
        lower = name.lower()
        if keyed:
            passes = lower.startswith(_CHECKSUMS)
        else:
            passes = lower not in _HEADS_ONLY and not lower.startswith(OWN_HEADERS)
        if passes and not holds_client_key(value):
            kept.append((name, value))
    return tuple(kept)


class RewrittenHeaders(NamedTuple):
    """A request's headers, once as they go upstream and once as they are kept."""

    sent: RawFields
    kept: RawFields
    """With Headrace's own headers, credentials not yet replaced."""


_KNOWN_NAMES = 64
"""Longer sets of names are looked at each time: heads may hold thousands, and others each time."""


@lru_cache(1024)
def _special(names: tuple[bytes, ...], given: bytes) -> dict[int, bytes]:
    """Return where, among headers of these names, what is rewritten may stand, in lower case.

    Clients send the same names again and again.
    """
    lower = [name.lower() for name in names]
    return {
        at: name
        for at, name in enumerate(lower)
        if name in _REWRITTEN
        or name == given
        or name.startswith(OWN_HEADERS)
        or holds_client_key(name)
    }


def rewrite_headers(
    fields: RawFields,
    *,
    host: bytes | None,
    key_header: bytes | None,
    credential: tuple[bytes, bytes] | None,
    added: Iterable[tuple[bytes, bytes]] = (),
) -> RewrittenHeaders:
    """Rewrite a request's headers: order and case stay, Headrace's own and its keys go no further.

    Args:
        fields: the client's headers.
        host: the upstream's authority, named once; None leaves what the client names.
        key_header: header whose Headrace key let the request in; it is taken off.
        credential: header of the provider's key; it replaces all credentials that providers take.
        added: headers for the capture only.
    """
    sent: list[tuple[bytes, bytes]] = []
    own: list[tuple[bytes, bytes]] = []
    placed, hosted = credential is None, host is None
    given = b"" if credential is None else credential[0].lower()
    look = _special if len(fields) <= _KNOWN_NAMES else _special.__wrapped__
    special = look(tuple([name for name, _ in fields]), given)
    for at, field in enumerate(fields):
        name, value = field
        lower = special.get(at)
        if lower is None:
            # Looked at closer only where it may be one: most values are none at a glance.
            suspect = (
                value.find(b"hr_") >= 0 or value.find(b"%") >= 0 or value.startswith((b"b", b"B"))
            )
            if not (suspect and holds_client_key(value)):
                sent.append(field)
            continue
        if _ends_here(lower, value):
            continue
        if lower == key_header or (
            credential is not None and (lower in PROVIDER_HEADERS or lower == given)
        ):
            if not placed and credential is not None:
                sent.append(credential)
                placed = True
        elif lower.startswith(OWN_HEADERS):
            if lower not in (b"x-headrace-key", URL_SESSION) and not holds_client_key(value):
                own.append((name, value))
        elif lower == b"host" and host is not None:
            if not hosted:
                sent.append((name, host))
                hosted = True
        elif holds_client_key(value):
            if lower == _SUBPROTOCOLS and (others := _other_subprotocols(value)):
                sent.append((name, others))
        else:
            sent.append((name, value))
    if not hosted and host is not None:
        sent.insert(0, (b"Host", host))
    if not placed and credential is not None:
        sent.append(credential)
    return RewrittenHeaders(tuple(sent), (*sent, *own, *added))


def _ends_here(lower: bytes, value: bytes) -> bool:
    """Tell whether a header is between client and gateway alone; its name is in lower case."""
    return (
        lower in _HOP
        or lower == _EXTENSIONS
        or (lower == b"upgrade" and b"h2c" in value.lower())
        or holds_client_key(lower)
    )


def _other_subprotocols(value: bytes) -> bytes:
    """Return the subprotocols that hold no key: browsers send keys as one of them."""
    return b", ".join([each.strip() for each in value.split(b",") if not holds_client_key(each)])


class UpstreamRequest:
    """A request as its client sent it, to be pointed at one upstream after the other."""

    __slots__ = ("_fields", "_key_header", "_noted", "_rest", "tried")

    def __init__(
        self,
        fields: RawFields,
        key_header: bytes | None,
        rest: bytes,
        session: bytes | None,
        task: bytes | None = None,
    ) -> None:
        self._fields = fields
        self._key_header = key_header
        self._rest = rest
        noted = (URL_SESSION, session), (_TASK, task)
        self._noted = tuple((name, value) for name, value in noted if value is not None)
        """For the capture only."""
        self.tried: list[Target] = []
        """The upstreams that it was pointed at."""

    def at(self, target: Target) -> tuple[RewrittenHeaders, bytes]:
        """Point the request at an upstream; return its headers and its path there."""
        self.tried.append(target)
        rewritten = rewrite_headers(
            self._fields,
            host=target.authority,
            key_header=self._key_header,
            credential=target.credential,
            added=self._noted,
        )
        return rewritten, target.base + self._rest


def key_giver(target: Target, proved: str) -> Target | None:
    """Return a target that has a key to give and has proved, where there is TLS, that it is it.

    The upstream's certificate must fit the name in the client's greeting. That may be another one than the client
    connected to: a neighbour behind the same front.
    """
    named = proved.lower() == target.upstream.host
    return target if target.credential is not None and named else None


def at_its_host(
    fields: RawFields, key_header: bytes | None, given: Target | None
) -> RewrittenHeaders:
    """Rewrite a request that goes where its client wanted; beside a key no other host is named."""
    return rewrite_headers(
        fields,
        host=given.authority if given is not None else None,
        key_header=key_header,
        credential=given.credential if given is not None else None,
    )
