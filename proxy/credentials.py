"""Credentials in requests: which headers carry them, and the fingerprints that stand for them."""

import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from urllib.parse import unquote_to_bytes

from proxy.spool.records import pack_lines

PROVIDER_HEADERS = frozenset(
    {
        b"authorization",
        b"proxy-authorization",
        b"x-api-key",
        b"api-key",
        b"x-goog-api-key",
        b"x-headrace-key",
        b"ocp-apim-subscription-key",
    }
)
"""Headers in which providers take keys: where a route has a credential, it replaces them all."""
CREDENTIAL_HEADERS = PROVIDER_HEADERS | {
    b"x-amz-security-token",
    b"cookie",
    b"set-cookie",
    b"x-auth-token",
    b"x-access-token",
    b"x-csrf-token",
    b"private-token",
    b"cf-access-client-secret",
    b"cf-aig-authorization",
    b"helicone-auth",
    b"x-portkey-api-key",
    b"x-litellm-api-key",
    b"x-openai-api-key",
    b"x-anthropic-api-key",
    # Browsers cannot set headers of a WebSocket: OpenAI takes a key as a subprotocol.
    b"sec-websocket-protocol",
}
"""Headers whose values never reach the spool; so do those that routes name for their credentials."""
KEY_HEADERS = (b"x-headrace-key", b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key")
"""Headers in which a client of the base-URL gateway may send its Headrace key."""

_QUERY = re.compile(
    rb"((?:^|&)(?:key|api[-_]key|access_token|token|sig|signature|code|subscription-key"
    rb"|x-(?:amz|goog)-(?:signature|security-token|credential))=)([^&]+)",
    re.IGNORECASE,
)

_CLIENT_KEY = re.compile(rb"hr_[0-9a-f]{12}_[0-9a-f]{40}")
"""As the registry makes them."""

type RawFields = tuple[tuple[bytes, bytes], ...]

_KNOWN_SETS = 256
_KNOWN_SET_BYTES = 2048
"""Sets of header names are remembered, so many and so long."""


class Fingerprints:
    """Replaces credentials by keyed fingerprints: equal ones stay equal, none can be guessed."""

    def __init__(self, key: bytes, *, also: Iterable[bytes] = ()) -> None:
        """Keep the key, and the names of further headers that carry credentials."""
        self._key = key
        self._names = CREDENTIAL_HEADERS | {name.lower() for name in also}
        self._places: dict[tuple[bytes, ...], tuple[int, ...]] = {}
        """Where credentials stand among headers of these names: clients send the same ones again."""
        self.of = lru_cache(1024)(self._of)

    def _of(self, value: bytes) -> bytes:
        return b"fp:" + blake2b(value, digest_size=8, key=self._key).hexdigest().encode()

    def headers(self, fields: RawFields) -> list[tuple[bytes, bytes]]:
        """Return the headers with lower-case names and without any credential."""
        of, names = self.of, self._names
        kept = []
        for name, value in fields:
            lower = name.lower()
            kept.append((lower, of(value) if lower in names else value))
        return kept

    def block(self, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return headers without any credential, as the block of lines in which records keep them."""
        flat = list(chain.from_iterable(fields))
        names = tuple(flat[::2])
        places = self._places.get(names)
        if places is None:
            places = self._find_places(names)
        for place in places:
            flat[place] = self.of(flat[place])
        block = b"\n".join(flat)
        return block if block.count(b"\n") < len(flat) else pack_lines(flat)

    def _find_places(self, names: tuple[bytes, ...]) -> tuple[int, ...]:
        secret = self._names
        places = tuple(2 * at + 1 for at, name in enumerate(names) if name.lower() in secret)
        if sum(map(len, names)) <= _KNOWN_SET_BYTES:
            if len(self._places) >= _KNOWN_SETS:
                self._places.clear()
            self._places[names] = places
        return places

    def query(self, query: bytes) -> bytes:
        """Return a query without the values of parameters that carry credentials."""
        if not query:
            return query
        return _QUERY.sub(lambda found: found[1] + self.of(found[2]), query)


def holds_client_key(value: bytes) -> bool:
    """Tell whether a header's value or a query's parameter holds a Headrace key."""
    if b"%" in value:
        value = unquote_to_bytes(value)
    return b"hr_" in value and _CLIENT_KEY.search(value) is not None


def presented_key(fields: RawFields) -> tuple[str | None, bytes | None]:
    """Return the Headrace key that a request carries, and the header that it stood in."""
    found: dict[bytes, str] = {}
    for name, value in fields:
        lower = name.lower()
        if lower in KEY_HEADERS:
            text = value.decode("latin-1").strip()
            scheme, _, rest = text.partition(" ")
            if rest and scheme.lower() == "bearer":
                text = rest.strip()
            if text.startswith("hr_"):
                found[lower] = text
    for header in KEY_HEADERS:
        if header in found:
            return found[header], header
    return None, None
