"""Requests rewritten for their upstream: once as they are sent, once as they are kept."""

from collections.abc import Iterable
from dataclasses import dataclass

from proxy.credentials import PROVIDER_HEADERS, RawFields

_OWN = b"x-headrace-"
URL_SESSION = b"x-headrace-url-session"
"""The gateway alone writes it, for the capture: the session in the request's path."""
_HOP = frozenset({b"proxy-authorization", b"proxy-connection", b"http2-settings"})


def take_session(path: bytes) -> tuple[bytes, bytes | None]:
    """Take ``/s/<session>`` off the beginning of a path; return the rest and the session."""
    if not path.startswith(b"/s/"):
        return path, None
    session, slash, rest = path[3:].partition(b"/")
    if not slash or not session:
        return path, None
    return b"/" + rest, session


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A request's headers, once as they go upstream and once as they are kept."""

    sent: RawFields
    kept: RawFields
    """With Headrace's own headers, credentials not yet replaced."""


def rewrite_headers(
    fields: RawFields,
    *,
    host: bytes | None,
    key_header: bytes | None,
    credential: tuple[bytes, bytes] | None,
    added: Iterable[tuple[bytes, bytes]] = (),
) -> Rewritten:
    """Rewrite a request's headers: order and case stay, Headrace's own go no further.

    Args:
        fields: the client's headers.
        host: the upstream's authority, named once; None leaves what the client names.
        key_header: header that carries the Headrace key; it is taken off.
        credential: header of the provider's key; it replaces all credentials that providers take.
        added: headers for the capture only.
    """
    sent: list[tuple[bytes, bytes]] = []
    own: list[tuple[bytes, bytes]] = []
    placed, hosted = credential is None, host is None
    for name, value in fields:
        lower = name.lower()
        if lower in _HOP or (lower == b"upgrade" and value.lower() == b"h2c"):
            continue
        if lower == key_header or (
            credential is not None and (lower in PROVIDER_HEADERS or lower == credential[0].lower())
        ):
            if not placed and credential is not None:
                sent.append(credential)
                placed = True
        elif lower.startswith(_OWN):
            if lower not in (b"x-headrace-key", URL_SESSION):
                own.append((name, value))
        elif lower == b"host" and host is not None:
            if not hosted:
                sent.append((name, host))
                hosted = True
        else:
            sent.append((name, value))
    if not hosted and host is not None:
        sent.insert(0, (b"Host", host))
    if not placed and credential is not None:
        sent.append(credential)
    return Rewritten(tuple(sent), (*sent, *own, *added))
