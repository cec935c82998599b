"""Token usage read from a response as it passes, for keys that have a budget of tokens or money.

No JSON is parsed: the numbers beside the known names are enough. Inside a string of the content such a name stands
behind a backslash and so does not count. If a provider reports nothing, usage is estimated: one token for each
streamed event, else one for four bytes of the answer. A text request counts one for four bytes too. Requests that
no model answers, and answers that are none, spend nothing.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from proxy.routes.paths import climbs

_INPUT = (
    b"prompt_tokens",
    b"input_tokens",
    b"promptTokenCount",
    b"inputTokens",
    b"prompt_eval_count",
)
_OUTPUT = (
    b"completion_tokens",
    b"output_tokens",
    b"candidatesTokenCount",
    b"thoughtsTokenCount",
    b"outputTokens",
    b"eval_count",
)
_CACHED = (b"cache_creation_input_tokens", b"cache_read_input_tokens")
_READ_FROM_CACHE = (b"cached_tokens", b"cachedContentTokenCount", b"cache_read_input_tokens")
"""Input from a cache; the first two are counted among the input, the last one beside it."""
_TOTAL = (b"total_tokens", b"totalTokenCount", b"totalTokens")
_NUMBER = re.compile(
    rb'(?<!\\)"('
    + b"|".join((*_INPUT, *_OUTPUT, *_CACHED, *_READ_FROM_CACHE[:2], *_TOTAL))
    + rb')"\s*:\s*(\d{1,12})'
)
_FREE = re.compile(
    rb"(?:^|/)(?:(?:files|uploads|batches|vector_stores|containers|conversations|fine_tuning"
    rb"|cachedContents|fileSearchStores|operations|moderations)(?:[/:].*)?"
    rb"|count_tokens|input_tokens|count-tokens(?::\w+)?|tokenize|detokenize|cancel|api/show"
    rb"|realtime/(?:client_secrets|sessions|transcription_sessions)"
    rb"|[^/]+:(?:countTokens|computeTokens))/?$"
)
"""POSTs that no model answers: what a provider keeps, and counts of tokens before they are spent."""
_LOOK_UP = re.compile(rb"/responses/[^/]+/?$")
"""GETs that bring the answer of a background response."""
_BACKGROUND = re.compile(rb'(?<!\\)"background"\s*:\s*true')
_ID = re.compile(rb'(?<!\\)"id"\s*:\s*"(resp_[\w-]{1,120})"')
_ESTIMABLE = (b"text/", b"application/json", b"application/x-ndjson")
_MODEL = re.compile(rb'(?<!\\)"model"\s*:\s*"([^"\\]{1,96})"')
_VERSION = re.compile(rb'(?<!\\)"modelVersion"\s*:\s*"([^"\\]{1,96})"')
_OVERLAP = 128
_BYTES_PER_TOKEN = 4

type Stream = bool | Callable[[bytes], bytes | list[bytes]]


def costs(method: bytes, path: bytes) -> bool:
    """Tell whether a request is one that a model answers; only such a one spends tokens."""
    bare = path.partition(b"?")[0]
    return method == b"POST" and (_FREE.search(bare) is None or climbs(bare))


def looks_up(method: bytes, path: bytes) -> bool:
    """Tell whether a request may bring the answer of a response that ran in the background."""
    return method == b"GET" and _LOOK_UP.search(path.partition(b"?")[0]) is not None


def is_estimable(content_type: bytes) -> bool:
    """Tell whether a request of this type has about as many tokens as its length says."""
    kind = content_type.partition(b";")[0].strip().lower()
    return not kind or kind.endswith(b"+json") or kind.startswith(_ESTIMABLE)


class SpentTokens(NamedTuple):
    """Tokens of a call, as prices are for them."""

    input_tokens: int
    """All of them, also those from a cache."""
    cached_tokens: int
    output_tokens: int


class UsageMeter:
    """Counts the tokens of one response, whatever its pieces."""

    def __init__(self, *, looks_up: bool = False) -> None:
        """Begin; what is only looked up was spent before, unless it ran in the background."""
        self.looks_up = looks_up
        self._is_background = False
        self._id: str | None = None
        self._found: dict[bytes, int] = {}
        self._tail = b""
        self._events = 0
        self._bytes = 0
        self.spent = False
        """What earlier messages of the connection reported is off the budgets."""
        self.model: str | None = None
        """The model that the answer names: behind it comes the content, or with Gemini before it."""
        self._is_named = self._content_first = False

    def feed(self, data: bytes) -> None:
        """Look at a piece of the body."""
        text = self._tail + data
        for name, number in _NUMBER.findall(text):
            self._found[name] = max(int(number), self._found.get(name, 0))
        self._is_background = self._is_background or _BACKGROUND.search(text) is not None
        if self._id is None and (named := _ID.search(text)):
            self._id = named[1].decode()
        if not self._is_named or self._content_first:
            self._name(text)
        # A number at the very end may go on in the next piece; it is then found again, larger.
        self._tail = text[-_OVERLAP:]
        self._events += data.count(b"data:")
        self._bytes += len(data)

    def _name(self, text: bytes) -> None:
        """Look for the model's name; behind content the last one counts, a call's arguments may hold others."""
        named, content = _MODEL.search(text), text.find(b'"candidates"')
        self._content_first |= content >= 0 and (named is None or content < named.start())
        if self._content_first or named is None:
            named = next(iter(reversed([*_VERSION.finditer(text)])), None)
        if named is not None:
            self.model, self._is_named = named[1].decode("utf-8", "replace"), True

    def next_message(self) -> None:
        """Begin another message of a connection (a WebSocket): what this one reported has been spent."""
        self.spent = self.spent or bool(self._reported())
        self._found, self._tail = {}, b""
        self._is_named = self._content_first = False

    def _reported(self) -> int | None:
        found = self._found
        if not found:
            return None
        total = max((found.get(name, 0) for name in _TOTAL), default=0)
        parts = max(found.get(name, 0) for name in _INPUT)
        parts += sum(found.get(name, 0) for name in (*_OUTPUT, *_CACHED))
        return total or parts

    def _usage(self) -> SpentTokens:
        """Return what was reported, told apart; what only a total says is taken for output."""
        found = self._found
        given = max(found.get(name, 0) for name in _INPUT) + sum(
            found.get(name, 0) for name in _CACHED
        )
        cached = max(found.get(name, 0) for name in _READ_FROM_CACHE)
        rest = (self._reported() or 0) - given
        return SpentTokens(given, min(cached, given), max(rest, 0))

    @property
    def answered(self) -> bool:
        """Whether anything came back at all."""
        return self._bytes > 0

    @property
    def reported(self) -> bool:
        """Whether the provider said how many tokens it took."""
        return bool(self._found)

    @property
    def background(self) -> str | None:
        """The id of a response that runs in the background: each look-up tells its usage again."""
        return self._id if self._is_background else None

    def tokens(self, request_bytes: int) -> int:
        """Return the tokens of the call; an estimate where the provider reported none."""
        if self.reported:
            return self._reported() or 0
        answered = self._events or self._bytes // _BYTES_PER_TOKEN
        return answered + request_bytes // _BYTES_PER_TOKEN

    def usage(self, request_bytes: int) -> SpentTokens:
        """Return the same tokens, told apart."""
        if self.reported:
            return self._usage()
        given = request_bytes // _BYTES_PER_TOKEN
        return SpentTokens(given, 0, self.tokens(request_bytes) - given)

    def tee(self, stream: Stream) -> Callable[[bytes], bytes | list[bytes]]:
        """Return a stream function that meters what passes into another."""

        def metered(data: bytes) -> bytes | list[bytes]:
            self.feed(data)
            return data if isinstance(stream, bool) else stream(data)

        return metered
