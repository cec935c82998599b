"""Token usage read from a response as it passes, for keys that have a budget of tokens or money.

No JSON is parsed: the numbers beside the known names are enough. Inside a string of the content such a name stands
behind a backslash and so does not count. If a provider reports nothing, usage is estimated: one token for each
streamed event, else one for four bytes of text or 800 of speech. A text request counts one for four bytes too.
Requests that no model answers, and answers that are none, spend nothing.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from proxy.clients.paid_calls import PaidCall
from trajectory.dialects.event_stream import EventStreamDecoder

type _Groups = tuple[tuple[bytes, ...], ...]
"""Names that mean the same, of one provider each; what stands in one group adds up."""

_INPUT: _Groups = (
    (b"prompt_tokens",),
    (b"input_tokens",),
    (b"promptTokenCount", b"toolUsePromptTokenCount"),
    (b"inputTokens",),
    (b"inputTokenCount",),
    (b"prompt_eval_count",),
    (b"total_input_tokens", b"total_tool_use_tokens"),
)
_OUTPUT: _Groups = (
    (b"completion_tokens",),
    (b"output_tokens",),
    (b"candidatesTokenCount", b"thoughtsTokenCount"),
    (b"outputTokens",),
    (b"outputTokenCount",),
    (b"eval_count",),
    (b"total_output_tokens", b"total_thought_tokens"),
)
_BEDROCK: _Groups = (
    (b"cacheReadInputTokens", b"cacheWriteInputTokens"),
    (b"cacheReadInputTokenCount", b"cacheWriteInputTokenCount"),
)
_BESIDE: _Groups = (
    (b"cache_creation_input_tokens", b"cache_read_input_tokens"),
    (b"connector_tokens",),
    *_BEDROCK,
)
"""Input that is not counted among the input."""
_READ_FROM_CACHE: _Groups = (
    (b"cached_tokens",),
    (b"cachedContentTokenCount",),
    (b"total_cached_tokens",),
    (b"cache_read_input_tokens",),
    (b"cacheReadInputTokens",),
    (b"cacheReadInputTokenCount",),
)
_TOTAL: _Groups = ((b"total_tokens",), (b"totalTokenCount",), (b"totalTokens",), (b"token_usage",))
_KNOWN = (*_INPUT, *_OUTPUT, *_BESIDE, *_READ_FROM_CACHE, *_TOTAL)
_NUMBER = re.compile(
    rb'(?<!\\)"('
    + b"|".join(sorted({name for group in _KNOWN for name in group}))
    + rb')"\s*:\s*(\d{1,12})'
)
_SECONDS = re.compile(rb'(?<!\\)"seconds"\s*:\s*(\d{1,9})')
"""How long the speech was that was heard."""
_COUNT_HEADERS = {
    b"x-amzn-bedrock-input-token-count": b"inputTokenCount",
    b"x-amzn-bedrock-output-token-count": b"outputTokenCount",
    b"x-amzn-bedrock-cache-read-input-token-count": b"cacheReadInputTokenCount",
    b"x-amzn-bedrock-cache-write-input-token-count": b"cacheWriteInputTokenCount",
}
_AWS_EVENTS = b"application/vnd.amazon.eventstream"
_PACKED = re.compile(rb'"bytes"\s*:\s*"([A-Za-z0-9+/=]+)"')
"""A model's own event within one of AWS."""
_BACKGROUND = re.compile(rb'(?<!\\)"background"\s*:\s*true')
_STATUS = re.compile(rb'(?<!\\)"(?:status"\s*:\s*"(\w+)"|(?:steps|outputs)"\s*:)')
_RUNNING = frozenset({b"queued", b"in_progress"})
_DEFERRED = re.compile(rb'\s*\{\s*"request_id"\s*:\s*"[^"\\]{1,200}"\s*\}\s*')
"""All that xAI says of a chat that it answers later."""
_RESPONSE_ID = re.compile(rb'(?<!\\)"id"\s*:\s*"(resp_[\w-]{1,120})"')
_ID = re.compile(rb'(?<!\\)"id"\s*:\s*"([\w.~:-]{1,256})"')
_ESTIMABLE = (b"text/", b"application/json", b"application/x-ndjson")
_MODEL = re.compile(rb'(?<!\\)"model"\s*:\s*"([^"\\]{1,96})"')
_VERSION = re.compile(rb'(?<!\\)"modelVersion"\s*:\s*"([^"\\]{1,96})"')
_OVERLAP = 320
_BYTES_PER_TOKEN, _SPEECH_BYTES_PER_TOKEN = 4, 800
_TOKENS_PER_SECOND = 20
"""Of speech, at most: providers say 10 to 20."""

type Stream = bool | Callable[[bytes], bytes | list[bytes]]


def is_estimable(content_type: bytes) -> bool:
    """Tell whether a request of this type has about as many tokens as its length says."""
    kind = _kind(content_type)
    return not kind or kind.endswith(b"+json") or kind.startswith(_ESTIMABLE)


def _kind(content_type: bytes) -> bytes:
    return content_type.partition(b";")[0].strip().lower()


class SpentTokens(NamedTuple):
    """Tokens of a call, as prices are for them."""

    input_tokens: int
    """All of them, also those from a cache."""
    cached_tokens: int
    output_tokens: int


class UsageMeter:
    """Counts the tokens of one response, whatever its pieces."""

    def __init__(self, call: PaidCall | None = None) -> None:
        """Begin with what the request's path says; None for a WebSocket."""
        self.call = call = call or PaidCall()
        self._is_background = False
        self._status: bytes | None = None
        """What the answer says of itself before its content."""
        self._id, self._ids = call.name, _ID if call.keeps else _RESPONSE_ID
        self._found: dict[bytes, int] = {}
        self._seconds = 0
        self._is_speech = False
        self._aws: EventStreamDecoder | None = None
        self._tail = b""
        self._events = 0
        self._bytes = 0
        self.spent = False
        """What earlier messages of the connection reported is off the budgets."""
        self.model = call.model
        """The model that the answer names: behind it comes the content, or with Gemini before it."""
        self._is_named, self._content_first = call.only_path_names, False

    def head(self, fields: Iterable[tuple[bytes, bytes]]) -> None:
        """Take the response's headers."""
        for written, value in fields:
            name = written.lower()
            if name == b"content-type":
                self._is_speech = _kind(value).startswith(b"audio/")
                self._aws = EventStreamDecoder() if _kind(value) == _AWS_EVENTS else None
            elif name in _COUNT_HEADERS and value.isdigit():
                self._found[_COUNT_HEADERS[name]] = int(value[:12])

    def feed(self, data: bytes) -> None:
        """Look at a piece of the body."""
        self._bytes += len(data)
        if self._aws is None:
            self._events += data.count(b"data:")
            self._read(data)
            return
        for message in self._aws.feed(data):
            self._events += 1
            packed = _PACKED.search(message.payload)
            try:
                self._read(message.payload if packed is None else b64decode(packed[1]))
            except Base64Error:
                self._read(message.payload)

    def _read(self, data: bytes) -> None:
        text = self._tail + data
        for name, number in _NUMBER.findall(text):
            self._found[name] = max(int(number), self._found.get(name, 0))
        if self.call.hears and (long := _SECONDS.search(text)):
            self._seconds = max(int(long[1]), self._seconds)
        self._is_background = self._is_background or _BACKGROUND.search(text) is not None
        if self._id is None and (named := self._ids.search(text)):
            self._id = named[1].decode()
        if self._status is None and (told := _STATUS.search(text)):
            self._status = told[1] or b""
        if not self._is_named or self._content_first:
            self._name(text)
        # A number at the very end may go on in the next piece; it is then found again, larger.
        self._tail = text[-_OVERLAP:]

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
        self.spent = self.spent or bool(self._total())
        self._found, self._tail = {}, b""
        self._is_named = self._content_first = False

    def _total(self) -> int:
        """Return all tokens that were reported."""
        found = self._found
        total, parts = _most(found, _TOTAL), self._given() + _most(found, _OUTPUT)
        if _most(found, _BEDROCK):  # its total may leave out what a cache had
            return max(total, parts)
        return total or parts

    def _given(self) -> int:
        return _most(self._found, _INPUT) + _most(self._found, _BESIDE)

    def _usage(self) -> SpentTokens:
        """Return what was reported, told apart; what only a total says is taken for output, but of vectors."""
        total, given = self._total(), self._given()
        if self.call.makes_vectors:
            given = total
        elif given > total:  # its input has all of it
            given = _most(self._found, _INPUT)
        cached = _most(self._found, _READ_FROM_CACHE)
        return SpentTokens(given, min(cached, given), max(total - given, 0))

    @property
    def reported(self) -> bool:
        """Whether the provider said how many tokens it took, or how long it heard."""
        return bool(self._found or self._seconds)

    @property
    def told_again(self) -> str | None:
        """The id under which each look-up tells the usage again; None where it is told once."""
        return self._id if self.call.keeps or self._is_background else None

    @property
    def due(self) -> bool:
        """Whether tokens are spent with this answer: what goes on in the background has told none."""
        if self._bytes == 0 or self.spent:
            return False
        if self.reported:
            return self.told_again is not None or not self.call.looks_up
        goes_on = self._events == 0 and self._status in _RUNNING
        if not self.call.keeps:
            goes_on = self.told_again is not None or self._is_deferred
        silent = self.call.only_reported and self._events == 0
        return not (self.call.looks_up or goes_on or silent)

    @property
    def _is_deferred(self) -> bool:
        return self._bytes <= _OVERLAP and _DEFERRED.fullmatch(self._tail) is not None

    def tokens(self, request_bytes: int) -> int:
        """Return the tokens of the call; an estimate where the provider reported none."""
        if self._found:
            return self._total()
        used = self.usage(request_bytes)
        return used.input_tokens + used.output_tokens

    def usage(self, request_bytes: int) -> SpentTokens:
        """Return the same tokens, told apart as prices are for them."""
        if self._found:
            return self._usage()
        if self._seconds:
            return SpentTokens(self._seconds * _TOKENS_PER_SECOND, 0, 0)
        heard = _SPEECH_BYTES_PER_TOKEN if self.call.hears else _BYTES_PER_TOKEN
        said = _SPEECH_BYTES_PER_TOKEN if self._is_speech else _BYTES_PER_TOKEN
        answered = 0 if self.call.makes_vectors else self._events or self._bytes // said
        return SpentTokens(request_bytes // heard, 0, answered)

    def tee(self, stream: Stream) -> Callable[[bytes], bytes | list[bytes]]:
        """Return a stream function that meters what passes into another."""

        def metered(data: bytes) -> bytes | list[bytes]:
            self.feed(data)
            return data if isinstance(stream, bool) else stream(data)

        return metered


def _most(found: Mapping[bytes, int], groups: _Groups) -> int:
    """Return the largest sum of a group: a provider may say the same by several names."""
    return max(sum(found.get(name, 0) for name in group) for group in groups)
