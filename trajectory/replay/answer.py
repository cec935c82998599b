"""A model's answer written out again, in the words of the wire that the client speaks.

The stored protocol keeps what was said, not how the bytes were cut: a stream is written with
pieces of one size. Media that a model made is named in the lake by hash alone and cannot be
written again.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from trajectory.call import Usage
from trajectory.canonical import JsonObject, JsonValue
from trajectory.message import Message, ToolCallPart

_LENGTH = frozenset({"length", "max_tokens", "max_output_tokens", "incomplete"})
_FILTER = frozenset({
    "content_filter", "content_filtered", "refusal", "guardrail_intervened", "safety",
    "prohibited_content", "blocklist", "recitation", "spii",
})  # fmt: skip

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
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers that belong to the answer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The request that is answered."""

    body: JsonObject = field(repr=False)
    path: str = ""
    query: str = ""
    """Some dialects name model and way of streaming there."""


class UnwritableError(ValueError):
    """The client's dialect has no writer."""


type Writer = Callable[[Answer, Asked], WireAnswer]


def write_answer(
    dialect: str, answer: Answer, request: JsonObject, *, path: str = "", query: str = ""
) -> WireAnswer:
    """Return an answer as the ``dialect`` has it, streamed when the request asks for a stream.

    Args:
        dialect: one of a model API, such as ``openai.chat`` or ``google.gemini``.
        answer: what was said.
        request: the body that is answered.
        path: where it was sent to; Gemini and Bedrock tell there whether to stream.
        query: what followed ``?``.

    Raises:
        UnwritableError: another dialect.
    """
    from trajectory.replay import (
        anthropic_messages,
        bedrock_converse,
        bedrock_invoke,
        google_gemini,
        google_interactions,
        ollama,
        openai_chat,
        openai_completions,
        openai_responses,
    )

    writers: dict[str, Writer] = {
        "openai.chat": openai_chat.write,
        "openai.completions": openai_completions.write,
        "openai.responses": openai_responses.write,
        "anthropic.messages": anthropic_messages.write,
        "google.gemini": google_gemini.write,
        "google.interactions": google_interactions.write,
        "bedrock.converse": bedrock_converse.write,
        "bedrock.invoke": bedrock_invoke.write,
        "ollama": ollama.write,
    }
    if dialect not in writers:
        raise UnwritableError(
            f"answers of {dialect!r} cannot be written; known: {', '.join(writers)}"
        )
    return writers[dialect](answer, Asked(request, path, query))


def as_json(value: JsonObject, *headers: tuple[str, str]) -> WireAnswer:
    """Return an answer that is one JSON object."""
    return WireAnswer("application/json", (json_bytes(value),), headers)


def as_events(events: list[bytes]) -> WireAnswer:
    """Return an answer that is a stream of server-sent events."""
    return WireAnswer("text/event-stream; charset=utf-8", tuple(events))


def json_bytes(value: JsonObject) -> bytes:
    """Return JSON as providers send it."""
    return json.dumps(value, ensure_ascii=False).encode()


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


def given_id(call: ToolCallPart) -> JsonObject:
    """Return a tool call's id where the provider gave one; ``tool:2`` is a name of ours."""
    ours = call.call_id.removeprefix(f"{call.name}:").isdigit()
    return {} if ours else {"id": call.call_id}


def input_object(arguments: JsonValue) -> JsonValue:
    """Return a tool call's arguments where the wire has no place for text: ``{}`` for invalid ones."""
    if isinstance(arguments, str):
        try:
            return cast(JsonValue, json.loads(arguments))
        except ValueError:
            return {}
    return arguments


def ended(answer: Answer) -> str:
    """Return why the answer ended: ``tool``, ``length``, ``filter`` or ``stop``."""
    reason = (answer.finish_reason or "").lower()
    if reason in _LENGTH:
        return "length"
    if reason in _FILTER:
        return "filter"
    return "tool" if answer.message.tool_calls() else "stop"
