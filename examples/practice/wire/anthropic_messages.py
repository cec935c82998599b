"""Anthropic messages: content blocks in, content blocks out, and their stream of events."""

from typing import Any

from examples.practice.engine import Token
from examples.practice.turns import CallPiece, CallStart, Piece, TextPiece
from examples.practice.wire.shape import (
    Answer,
    Ask,
    WireError,
    event,
    need,
    new_id,
    sampling_of,
    text_of,
)

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}


class AnthropicMessages:
    """``POST /v1/messages``."""

    name = "anthropic.messages"

    def read(self, body: dict[str, Any]) -> Ask:
        """Read a request."""
        messages: list[dict[str, Any]] = []
        if body.get("system"):
            messages.append({"role": "system", "content": text_of(body["system"])})
        for message in need(body, "messages", list):
            messages.extend(_messages(message))
        choice = (body.get("tool_choice") or {}).get("type")
        return Ask(
            model=need(body, "model", str),
            messages=messages,
            with_tools=bool(body.get("tools")) and choice != "none",
            sampling=sampling_of(body, max_tokens=need(body, "max_tokens", int)),
            stream=bool(body.get("stream")),
            body=body,
        )

    def writer(self, _ask: Ask, _tokenizer: Any) -> "_MessagesWriter":
        """Return what writes the answer."""
        return _MessagesWriter()

    def error(self, error: WireError) -> dict[str, Any]:
        """Return Anthropic's error body."""
        body = {"type": error.kind, "message": error.message}
        return {"type": "error", "error": body, "request_id": new_id("req_")}


def _messages(message: Any) -> list[dict[str, Any]]:
    """Return a wire message as template messages: each tool result is a message of its own."""
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
        raise WireError(400, "invalid_request_error", "messages: role must be user or assistant")
    content = message.get("content")
    if isinstance(content, str):
        return [{"role": message["role"], "content": content}]
    if not isinstance(content, list):
        raise WireError(400, "invalid_request_error", "messages: content must be text or a list")
    results = [
        {"role": "tool", "content": text_of(block.get("content"))}
        for block in content
        if block.get("type") == "tool_result"
    ]
    calls = [
        {"function": {"name": block["name"], "arguments": block["input"]}}
        for block in content
        if block.get("type") == "tool_use"
    ]
    rest = [b for b in content if b.get("type") not in ("tool_result", "tool_use", "thinking")]
    said: dict[str, Any] = {"role": message["role"], "content": text_of(rest)}
    if calls:
        said["tool_calls"] = calls
    return [*results, said] if rest or calls or not results else results


class _MessagesWriter:
    """Writes messages; a block is closed when the next one begins."""

    def __init__(self) -> None:
        self._id = new_id("msg_")
        self._index = -1
        self._kind: str | None = None

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return a ``message``."""
        blocks: list[dict[str, Any]] = []
        if answer.text:
            blocks.append({"type": "text", "text": answer.text})
        blocks.extend(_tool_use(call.name, call.parsed() or {}) for call in answer.calls)
        return {
            **self._head(answer),
            "content": blocks,
            "stop_reason": _stop_reason(answer),
            "usage": _usage(answer),
        }

    def start(self, answer: Answer) -> bytes:
        """Return the event that opens the message."""
        usage = {**_usage(answer), "output_tokens": 1}
        message = {**self._head(answer), "content": [], "stop_reason": None, "usage": usage}
        return _named("message_start", message=message) + _named("ping")

    def token(self, _token: Token, pieces: list[Piece]) -> bytes:
        """Return the events of the pieces."""
        return b"".join(self._piece(piece) for piece in pieces)

    def end(self, answer: Answer) -> bytes:
        """Close the last block and the message."""
        delta = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
        usage = {"output_tokens": len(answer.tokens)}
        return (
            self._close()
            + _named("message_delta", delta=delta, usage=usage)
            + _named("message_stop")
        )

    def _piece(self, piece: Piece) -> bytes:
        match piece:
            case TextPiece(text=text):
                opened = b""
                if self._kind != "text":
                    opened = self._open("text", {"type": "text", "text": ""})
                return opened + self._delta({"type": "text_delta", "text": text})
            case CallStart(name=name):
                return self._open("tool_use", _tool_use(name, {}))
            case CallPiece(text=text):
                return self._delta({"type": "input_json_delta", "partial_json": text})

    def _open(self, kind: str, block: dict[str, Any]) -> bytes:
        closed = self._close()
        self._index += 1
        self._kind = kind
        return closed + _named("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _named("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> bytes:
        if self._kind is None:
            return b""
        self._kind = None
        return _named("content_block_stop", index=self._index)

    def _head(self, answer: Answer) -> dict[str, Any]:
        head = {"id": self._id, "type": "message", "role": "assistant", "model": answer.model}
        return {**head, "stop_sequence": None}


def _named(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, name=kind)


def _tool_use(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": new_id("toolu_"), "name": name, "input": arguments}


def _stop_reason(answer: Answer) -> str:
    if answer.calls and answer.ended_by == "stop":
        return "tool_use"
    return _STOP_REASONS[answer.ended_by or "stop"]


def _usage(answer: Answer) -> dict[str, Any]:
    return {
        "input_tokens": len(answer.prompt),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": len(answer.tokens),
        "service_tier": "standard",
    }
