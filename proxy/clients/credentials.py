"""Finds credentials in requests by header name and replaces them with fingerprints."""

import binascii
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

_KEY_LENGTHS = frozenset(map(len, KEY_HEADERS))

ADDRESS_HEADERS = frozenset({b"location", b"content-location", b"referer"})
"""Headers that hold addresses, whose queries may carry credentials."""

_MARKS = re.compile(rb"[-_.\s\[\]]")
"""What spellings of one name differ in, beside case: ``api_key``, ``apiKey``, ``API-Key``."""
_WORDS = frozenset(
    b"appid auth bearer code codeverifier jwt key passphrase passwd pwd sas sig".split()
)
_ENDINGS = re.compile(
    rb"(?:(?:api|app|application|access|secret|private|subscription|functions|shared|account)key"
    rb"|accesskeyid|secret|passw(?:or)?d|signature|credentials?|assertion|authorization"
    rb"|(?<!page)(?<!next)(?<!continuation)(?<!sync)(?<!start)(?<!cursor)(?<!delta)(?<!resume)token)$"
)
"""Ends of names of credentials; tokens that name a place in a list are none."""

_CLIENT_KEY = re.compile(rb"hr_[0-9a-f]{12}_[0-9a-f]{40}")
"""As the registry makes them."""

_DECODED_TIMES = 4
"""Fronts and frameworks decode an address once or twice."""
_URL_SAFE = bytes.maketrans(b"-_", b"+/")

_IN_ADDRESS = re.compile(rb"([?#])")

type RawFields = tuple[tuple[bytes, bytes], ...]
type _Places = tuple[tuple[int, ...], tuple[int, ...]]
"""Of values of headers: those that are credentials, and those that are addresses."""

_KNOWN_SETS = 256
_KNOWN_SET_BYTES = 2048
"""Sets of header names are remembered, so many and so long."""


class Fingerprints:
    """Replaces credentials by keyed fingerprints: equal ones stay equal, none can be guessed."""

    def __init__(self, key: bytes, *, also: Iterable[bytes] = ()) -> None:
        """Keep the key, and the names of further headers that carry credentials."""
        self._key = key
        self._names = CREDENTIAL_HEADERS | {name.lower() for name in also}
        self._places: dict[tuple[bytes, ...], _Places] = {}
        """What stands where among headers of these names: clients send the same ones again."""
        self.of = lru_cache(1024)(self._of)

    def _of(self, value: bytes) -> bytes:
        return b"fp:" + blake2b(value, digest_size=8, key=self._key).hexdigest().encode()

    def headers(self, fields: RawFields) -> list[tuple[bytes, bytes]]:
        """Return the headers with lower-case names and without any credential."""
        kept = []
        for name, value in fields:
            lower = name.lower()
            if self.is_secret(lower):
                kept.append((lower, self.of(value)))
            else:
                kept.append((lower, self.address(value) if lower in ADDRESS_HEADERS else value))
        return kept

    def is_secret(self, lower: bytes) -> bool:
        """Tell whether a header of this name, in lower case, carries a credential."""
        return lower in self._names or is_credential(lower)

    def block(self, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return headers without any credential, as the block of lines in which records keep them."""
        flat = list(chain.from_iterable(fields))
        names = tuple(flat[::2])
        places = self._places.get(names)
        if places is None:
            places = self._find_places(names)
        secrets, addresses = places
        for place in secrets:
            flat[place] = self.of(flat[place])
        for place in addresses:
            flat[place] = self.address(flat[place])
        block = b"\n".join(flat)
        return block if block.count(b"\n") < len(flat) else pack_lines(flat)

    def _find_places(self, names: tuple[bytes, ...]) -> _Places:
        lower = [(2 * at + 1, name.lower()) for at, name in enumerate(names)]
        places = (
            tuple(at for at, name in lower if self.is_secret(name)),
            tuple(at for at, name in lower if name in ADDRESS_HEADERS),
        )
        if sum(map(len, names)) <= _KNOWN_SET_BYTES:
            if len(self._places) >= _KNOWN_SETS:
                self._places.clear()
            self._places[names] = places
        return places

    def query(self, query: bytes) -> bytes:
        """Return a query without the values of parameters that carry credentials."""
        return b"&".join([self._parameter(each) for each in query.split(b"&")]) if query else query

    def _parameter(self, text: bytes) -> bytes:
        """Return a parameter without a credential; older servers take ``;`` for ``&``."""
        begin = 0
        while (equals := text.find(b"=", begin)) >= 0:
            name = text[begin:equals].rpartition(b";")[2]
            if is_credential(name) and equals + 1 < len(text):
                return text[: equals + 1] + self.of(text[equals + 1 :])
            begin = text.find(b";", equals) + 1
            if not begin:
                break
        return text

    def address(self, address: bytes) -> bytes:
        """Return an address without the credentials in its query and in its fragment."""
        base, *rest = _IN_ADDRESS.split(address)
        return base + b"".join([each if each in b"?#" else self.query(each) for each in rest])


def is_credential(name: bytes) -> bool:
    """Tell whether a parameter or a header of this name carries a credential, however it is spelt."""
    folded = _MARKS.sub(b"", unquote_to_bytes(name).lower())
    return folded in _WORDS or _ENDINGS.search(folded) is not None


def holds_client_key(value: bytes) -> bool:
    """Tell whether a header's name or value, a path or a query's parameter holds a Headrace key."""
    # find, not ``in``: between bytes ``in`` first fails to read a number, eight times the cost.
    for _ in range(_DECODED_TIMES):
        if value.find(b"%") < 0:
            break
        value = unquote_to_bytes(value)
    if value[:5].lower() == b"basic":
        value = _user_and_password(value[5:])
    return value.find(b"hr_") >= 0 and _CLIENT_KEY.search(value) is not None


def _user_and_password(coded: bytes) -> bytes:
    """Return what Basic credentials say, decoded as leniently as any server may do it."""
    try:
        return binascii.a2b_base64(coded.translate(_URL_SAFE) + b"==")
    except binascii.Error:
        return b""


def presented_key(fields: RawFields) -> tuple[str | None, bytes | None]:
    """Return the Headrace key that a request carries, and the header that it stood in."""
    found: dict[bytes, str] = {}
    for name, value in fields:
        if len(name) in _KEY_LENGTHS and (lower := name.lower()) in KEY_HEADERS:
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
