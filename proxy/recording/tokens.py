"""Token-level capture: ask an engine for exact token ids, and take the answer out again.

On routes with ``capture: tokens``, for chat completions, completions, responses and messages. The request
gets ``return_token_ids`` and ``logprobs`` where the client sent neither; the spool keeps the engine's
answer whole; the client gets it without what it did not ask for. What cannot be read passes as it is.

vLLM and SGLang know the fields in chat completions and completions, ``headrace serve`` in all four.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proxy.clients.credentials import RawFields
from proxy.heads import value_of
from proxy.request_json import dumped, parsed

TOKEN_PATHS = {
    "openai.chat": b"/chat/completions",
    "openai.completions": b"/completions",
    "openai.responses": b"/responses",
    "anthropic.messages": b"/messages",
}
"""By dialect, how the paths of requests end that token ids can be asked for in; asked in this order."""
MAX_BODY_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AddedFields:
    """Fields added to a request; the gateway removes them from its response."""

    body: bytes
    """The request as it goes upstream."""
    token_ids: bool
    logprobs: bool
    dialect: str = "openai.chat"


def token_dialect(method: bytes, path: bytes, headers: RawFields) -> str | None:
    """Return the dialect of a request that token ids can be asked for in: plain JSON of known length."""
    path = path.partition(b"?")[0]
    found = next((name for name, end in TOKEN_PATHS.items() if path.endswith(end)), None)
    if found is None or b"/threads/" in path:  # OpenAI's threads have messages too
        return None
    return found if plain_json(method, headers) else None


def plain_json(method: bytes, headers: RawFields) -> bool:
    """Tell from a request's head whether its body is plain JSON of a known length."""
    if method != b"POST":
        return False
    length = value_of(headers, b"content-length") or b""
    return (
        length.isdigit()
        and int(length) <= MAX_BODY_BYTES
        and (value_of(headers, b"content-type") or b"").startswith(b"application/json")
        and value_of(headers, b"content-encoding") is None
    )


def ask(body: bytes, dialect: str = "openai.chat") -> AddedFields | None:
    """Add what token capture needs to a request; None where nothing is to be added or understood."""
    try:
        value = parsed(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("n") not in (None, 1):
        return None
    prompts = value.get("prompt") if dialect == "openai.completions" else None
    if isinstance(prompts, list) and not all(isinstance(one, int) for one in prompts):
        return None  # several prompts have several answers
    token_ids = not value.get("return_token_ids")
    plain = dialect != "openai.completions"  # there a number says how many others are told
    logprobs = not value.get("logprobs") if plain else value.get("logprobs") is None
    if not token_ids and not logprobs:
        return None
    if token_ids:
        value["return_token_ids"] = True
    if logprobs and plain:
        value["logprobs"] = True
        value["top_logprobs"] = 0
    elif logprobs:
        value["logprobs"] = 0
    return AddedFields(dumped(value), token_ids, logprobs, dialect)


class TokenCheck:
    """Compares the token ids of one answer with the counts that the engine reports."""

    __slots__ = ("_completion", "_prompt", "_usage")

    def __init__(self) -> None:
        self._prompt = 0
        self._completion = 0
        self._usage: dict[str, Any] = {}

    def see(self, value: Any) -> None:
        """Look at a response, or at a chunk of one."""
        if not isinstance(value, dict):
            return
        for holder in (*_answers(value), *_choices(value)):
            prompt, ids = holder.get("prompt_token_ids"), holder.get("token_ids")
            if isinstance(prompt, list):
                self._prompt = len(prompt)
            if isinstance(ids, list):
                self._completion += len(ids)
            usage = holder.get("usage")
            if isinstance(usage, dict):
                self._usage.update({k: v for k, v in usage.items() if v is not None})

    @property
    def sound(self) -> bool:
        """Whether there are ids, and as many as were counted where anything was."""
        usage = self._usage
        given = usage.get("prompt_tokens", usage.get("input_tokens"))
        made = usage.get("completion_tokens", usage.get("output_tokens"))
        if isinstance(given, int):  # Anthropic counts apart what a cache had
            given += sum(int(usage.get(name) or 0) for name in _CACHED)
        return (
            self._prompt > 0
            and self._completion > 0
            and given in (None, self._prompt)
            and made in (None, self._completion)
        )


_CACHED = ("cache_read_input_tokens", "cache_creation_input_tokens")


def _answers(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what has an answer's own fields: the value, and what an event of a stream holds."""
    inner = (value.get("response"), value.get("message"))
    return [value, *(one for one in inner if isinstance(one, dict))]


def _choices(value: dict[str, Any]) -> list[dict[str, Any]]:
    choices = value.get("choices")
    return [one for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []


def strip_json(body: bytes, asked: AddedFields, check: TokenCheck | None = None) -> bytes:
    """Take out of a response what the client did not ask for; what is not JSON stays."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return body
    if check is not None:
        check.see(value)
    return dumped(value) if _strip(value, asked) else body


def _strip(value: Any, asked: AddedFields) -> bool:
    """Change a response or a chunk in place; tell whether anything was changed."""
    if not isinstance(value, dict):
        return False
    changed = False
    answers, choices = _answers(value), _choices(value)
    if asked.token_ids:
        for holder in (*answers, *choices):
            changed |= holder.pop("prompt_token_ids", None) is not None
            changed |= holder.pop("token_ids", None) is not None
    if asked.logprobs:
        for choice in choices:
            if choice.get("logprobs") is not None:
                choice["logprobs"] = None
                changed = True
        for answer in answers:
            # Events of responses have lists of that name, whoever asks; what was added is an object.
            if isinstance(answer.get("logprobs"), dict):
                del answer["logprobs"]
                changed = True
    return changed


class StreamStripper:
    """Strips a stream of server-sent events, whatever the boundaries of its chunks.

    Whole lines pass at once; the line that is still open waits for its end.
    """

    def __init__(self, asked: AddedFields, check: TokenCheck | None = None) -> None:
        self._asked = asked
        self._check = check
        self._open = b""

    def feed(self, data: bytes) -> bytes:
        """Return the stripped form of all lines that ``data`` completes."""
        lines = (self._open + data).split(b"\n")
        self._open = lines.pop()
        return b"".join(self._line(line) + b"\n" for line in lines)

    def close(self) -> bytes:
        """Return what is left when the stream has ended."""
        left, self._open = self._open, b""
        return self._line(left) if left else b""

    def _line(self, line: bytes) -> bytes:
        if not line.startswith(b"data:"):
            return line
        body = line[5:]
        end = b"\r" if body.endswith(b"\r") else b""
        text = body.strip()
        if not text.startswith(b"{"):
            return line
        stripped = strip_json(text, self._asked, self._check)
        return line if stripped is text else b"data: " + stripped + end


def stripping_stream(
    record: Callable[[bytes], bytes], stripper: StreamStripper
) -> Callable[[bytes], list[bytes]]:
    """Return a tee that records the upstream's bytes and gives the client the stripped ones.

    An empty piece would end a chunked body early, so it yields a list without empty pieces.
    """

    def stream(data: bytes) -> list[bytes]:
        record(data)
        piece = stripper.feed(data) if data else stripper.close()
        return [piece] if piece else []

    return stream
