"""Token-level capture: ask an engine for exact token ids, and take the answer out again.

For chat completions on routes with ``capture: tokens``. The request gets ``return_token_ids`` and
``logprobs`` where the client sent neither; the spool keeps the engine's answer whole; the client
gets it without what it did not ask for. What cannot be read passes as it is.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_PATH = b"/chat/completions"
MAX_BODY_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AddedFields:
    """Fields added to a request; the gateway removes them from its response."""

    body: bytes
    """The request as it goes upstream."""
    token_ids: bool
    logprobs: bool


def applies(method: bytes, path: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
    """Tell from a request's head whether token capture can be asked for: plain JSON of known length."""
    return path.partition(b"?")[0].endswith(_PATH) and plain_json(method, headers)


def plain_json(method: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
    """Tell from a request's head whether its body is plain JSON of a known length."""
    if method != b"POST":
        return False
    values = dict(headers)
    length = values.get(b"content-length", b"")
    return (
        b"content-encoding" not in values
        and values.get(b"content-type", b"").startswith(b"application/json")
        and length.isdigit()
        and int(length) <= MAX_BODY_BYTES
    )


def ask(body: bytes) -> AddedFields | None:
    """Add what token capture needs to a request; None where nothing is to be added or understood."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("n") not in (None, 1):
        return None
    token_ids = not value.get("return_token_ids")
    logprobs = not value.get("logprobs")
    if not token_ids and not logprobs:
        return None
    if token_ids:
        value["return_token_ids"] = True
    if logprobs:
        value["logprobs"] = True
        value["top_logprobs"] = 0
    return AddedFields(_dump(value), token_ids, logprobs)


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


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
        prompt = value.get("prompt_token_ids")
        if isinstance(prompt, list):
            self._prompt = len(prompt)
        choices = value.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            ids = choice.get("token_ids") if isinstance(choice, dict) else None
            if isinstance(ids, list):
                self._completion += len(ids)
        if isinstance(value.get("usage"), dict):
            self._usage = value["usage"]

    @property
    def sound(self) -> bool:
        """Whether there are ids, and as many as were counted where anything was."""
        counted = self._usage.get("prompt_tokens"), self._usage.get("completion_tokens")
        return (
            self._prompt > 0
            and self._completion > 0
            and counted[0] in (None, self._prompt)
            and counted[1] in (None, self._completion)
        )


def strip_json(body: bytes, asked: AddedFields, check: TokenCheck | None = None) -> bytes:
    """Take out of a response what the client did not ask for; what is not JSON stays."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return body
    if check is not None:
        check.see(value)
    return _dump(value) if _strip(value, asked) else body


def _strip(value: Any, asked: AddedFields) -> bool:
    """Change a response or a chunk in place; tell whether anything was changed."""
    if not isinstance(value, dict):
        return False
    changed = False
    choices = value.get("choices")
    holders = [c for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []
    if asked.token_ids:
        changed |= value.pop("prompt_token_ids", None) is not None
        for choice in holders:
            changed |= choice.pop("token_ids", None) is not None
    if asked.logprobs:
        for choice in holders:
            if choice.get("logprobs") is not None:
                choice["logprobs"] = None
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
