"""Token usage read from a response as it passes, for keys that have a budget of tokens or money.

No JSON is parsed: the numbers beside the known names are enough. Inside a string of the content such a name stands
behind a backslash and so does not count. If a provider reports nothing, usage is estimated: one token for each
streamed event, else one for four bytes of the answer. A text request counts one for four bytes too. Requests that
no model answers, and answers that are none, spend nothing.
"""

import re
from collections.abc import Callable
from posixpath import normpath
from typing import NamedTuple

from proxy.routes.paths import climbs, lenient_reading

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
_LATER = re.compile(
    r"/(?:batches|batch/jobs|fine[-_]tuning/jobs|fine-tunes|tuned_?models|(?:custom|tuning)jobs"
    r"|batchpredictionjobs|model-(?:customization|invocation)-jobs?|async-invoke|embed-jobs"
    r"|evals/[^/]+/runs|videos(?:/generations|/[^/]+/remix)?|video/generations/jobs"
    r"|[^/]+:(?:batchgeneratecontent|asyncbatchembedcontent|predictlongrunning))$",
    re.IGNORECASE,
)
"""POSTs that order work which is done and paid later, and of which no answer tells the tokens."""
_KEPT = re.compile(rb"(?:^|/)conversations(?:/[^/:]+(?:/restart)?)?/?$")
"""POSTs that a model answers with Mistral, and that only keep something with OpenAI."""
_LOOK_UP = re.compile(rb"/(?:responses|interactions)/([^/]+)/?$")
"""GETs that bring the answer of a background response or interaction."""
_INTERACTION = re.compile(rb"/interactions(?:/[^/]+)?/?$")
"""An interaction is kept: look-ups tell its usage again, and it does not say that it runs in the background."""
_BACKGROUND = re.compile(rb'(?<!\\)"background"\s*:\s*true')
_STATUS = re.compile(rb'(?<!\\)"(?:status"\s*:\s*"(\w+)"|(?:steps|outputs)"\s*:)')
_RUNNING = frozenset({b"queued", b"in_progress"})
_RESPONSE_ID = re.compile(rb'(?<!\\)"id"\s*:\s*"(resp_[\w-]{1,120})"')
_ID = re.compile(rb'(?<!\\)"id"\s*:\s*"([\w.~:-]{1,256})"')
_ESTIMABLE = (b"text/", b"application/json", b"application/x-ndjson")
_MODEL = re.compile(rb'(?<!\\)"model"\s*:\s*"([^"\\]{1,96})"')
_VERSION = re.compile(rb'(?<!\\)"modelVersion"\s*:\s*"([^"\\]{1,96})"')
_OVERLAP = 320
_BYTES_PER_TOKEN = 4

type Stream = bool | Callable[[bytes], bytes | list[bytes]]


def costs(method: bytes, path: bytes) -> bool:
    """Tell whether a request is one that a model answers; only such a one spends tokens."""
    bare = path.partition(b"?")[0]
    return method == b"POST" and (_FREE.search(bare) is None or climbs(bare))


def is_paid_later(method: bytes, path: bytes) -> bool:
    """Tell whether a request orders work whose cost nobody can count."""
    if method != b"POST":
        return False
    read = lenient_reading(path.partition(b"?")[0])
    return read is None or _LATER.search(normpath(read)) is not None


def meter_of(method: bytes, path: bytes) -> "UsageMeter | None":
    """Return what counts the tokens of a request's answer; None where no model answers it."""
    bare = path.partition(b"?")[0]
    keeps = _INTERACTION.search(bare) is not None
    if method == b"GET" and (found := _LOOK_UP.search(bare)):
        name = found[1].decode("utf-8", "replace") if keeps else None
        return UsageMeter(looks_up=True, keeps=keeps, name=name)
    if _KEPT.search(bare) is not None and method == b"POST":
        return UsageMeter(only_reported=True)
    return UsageMeter(keeps=keeps) if costs(method, path) else None


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

    def __init__(
        self,
        *,
        looks_up: bool = False,
        keeps: bool = False,
        only_reported: bool = False,
        name: str | None = None,
    ) -> None:
        """Begin.

        Args:
            looks_up: the answer was spent before, unless it ran in the background.
            keeps: it is an interaction, which look-ups tell again.
            only_reported: nothing is estimated of an answer that comes at once.
            name: its id, where the request says it.
        """
        self.looks_up, self._keeps, self._only_reported = looks_up, keeps, only_reported
        self._is_background = False
        self._status: bytes | None = None
        """What the answer says of itself before its content."""
        self._id, self._ids = name, _ID if keeps else _RESPONSE_ID
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
        if self._id is None and (named := self._ids.search(text)):
            self._id = named[1].decode()
        if self._status is None and (told := _STATUS.search(text)):
            self._status = told[1] or b""
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
    def reported(self) -> bool:
        """Whether the provider said how many tokens it took."""
        return bool(self._found)

    @property
    def told_again(self) -> str | None:
        """The id under which each look-up tells the usage again; None where it is told once."""
        return self._id if self._keeps or self._is_background else None

    @property
    def due(self) -> bool:
        """Whether tokens are spent with this answer: what goes on in the background has told none."""
        if self._bytes == 0 or self.spent:
            return False
        if self.reported:
            return self.told_again is not None or not self.looks_up
        goes_on = self._events == 0 and self._status in _RUNNING
        if not self._keeps:
            goes_on = self.told_again is not None
        silent = self._only_reported and self._events == 0
        return not (self.looks_up or goes_on or silent)

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
