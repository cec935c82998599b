"""A model's answer written out again, in the words of the wire that the client speaks.

The stored protocol keeps what was said, not how the bytes were cut: a stream is written with
pieces of one size. Media that a model made is named in the lake by hash alone and cannot be
written again.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from trajectory.call import Usage
from trajectory.canonical import JsonObject
from trajectory.message import Message

_PIECE = 48
"""Characters of text in one event of a stream."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said once."""

    message: Message
    response_id: str
    model: str
    finish_reason: str | None = None
    """In the words of any dialect; they are translated."""
    usage: Usage = field(default_factory=Usage)
    created: int = 0
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """Bytes to send."""

    content_type: str
    pieces: tuple[bytes, ...] = field(repr=False)
    """The body; the events of a stream one by one."""


class UnwritableError(ValueError):
    """The client's dialect has no writer."""


type Writer = Callable[[Answer, JsonObject], JsonObject]
type StreamWriter = Callable[[Answer, JsonObject], list[bytes]]


def write_answer(dialect: str, answer: Answer, request: JsonObject) -> WireAnswer:
    """Return an answer as the ``dialect`` has it, streamed when the request asks for a stream.

    Args:
        dialect: ``openai.chat``, ``openai.responses`` or ``anthropic.messages``.
        answer: what was said.
        request: the body that is answered.

    Raises:
        UnwritableError: another dialect.
    """
    from trajectory.replay import anthropic_messages, openai_chat, openai_responses

    writers: dict[str, tuple[Writer, StreamWriter]] = {
        "openai.chat": (openai_chat.whole, openai_chat.events),
        "openai.responses": (openai_responses.whole, openai_responses.events),
        "anthropic.messages": (anthropic_messages.whole, anthropic_messages.events),
    }
    if dialect not in writers:
        raise UnwritableError(
            f"answers of {dialect!r} cannot be written; known: {', '.join(writers)}"
        )
    whole, events = writers[dialect]
    if request.get("stream") is True:
        return WireAnswer("text/event-stream; charset=utf-8", tuple(events(answer, request)))
    body = json.dumps(whole(answer, request), ensure_ascii=False).encode()
    return WireAnswer("application/json", (body,))


def event(value: JsonObject, name: str | None = None) -> bytes:
    """Return one server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def in_pieces(text: str) -> list[str]:
    """Return a text as a stream carries it."""
    return [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]


def arguments_text(arguments: object) -> str:
    """Return a tool call's arguments as models write them; invalid ones as they came."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def ended(answer: Answer) -> str:
    """Return why the answer ended: ``tool``, ``length``, ``filter`` or ``stop``."""
    reason = answer.finish_reason or ""
    if reason in ("length", "max_tokens", "max_output_tokens", "incomplete"):
        return "length"
    if reason in ("content_filter", "refusal"):
        return "filter"
    return "tool" if answer.message.tool_calls() else "stop"
