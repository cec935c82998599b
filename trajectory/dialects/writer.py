"""Answers in the words of a wire: the values and the helpers that all writers share.

Each folder of a model API has a module ``write``. Its ``write`` returns a finished answer, whole or
as a stream. Where a server of models speaks the API, ``open_stream`` returns what writes an answer as it grows.
The stored protocol keeps what was said, not how the bytes were cut: a finished answer is streamed in
pieces of one size. Media that a model made is stored by hash alone and cannot be written again.
"""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from trajectory.call import Usage
from trajectory.canonical import JsonObject, JsonValue
from trajectory.message import Message, TextPart, ToolCallPart

_LENGTH = frozenset({"length", "max_tokens", "max_output_tokens", "incomplete"})
_FILTER = frozenset({
    "content_filter", "content_filtered", "refusal", "guardrail_intervened", "safety",
    "prohibited_content", "blocklist", "recitation", "spii",
})  # fmt: skip

EVENTS = "text/event-stream; charset=utf-8"
_PIECE = 48
"""Characters of text in one event of a stream."""


@dataclass(frozen=True, slots=True)
class SampledToken:
    """One token of an answer, for clients that ask for ids or log probabilities."""

    id: int
    text: str = field(repr=False)
    logprob: float
    top: tuple[tuple[str, float], ...] = field(default=(), repr=False)
    """The likeliest tokens at this place: text and log probability."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What a model said once."""

    message: Message
    response_id: str
    model: str
    finish_reason: str | None = None
    """In the words of any dialect; the writer translates them."""
    usage: Usage = field(default_factory=Usage)
    created: int = 0
    """Seconds since 1970."""
    prompt_ids: tuple[int, ...] = field(default=(), repr=False)
    """Token ids of the prompt, where the server of the model knows them."""
    tokens: tuple[SampledToken, ...] = field(default=(), repr=False)
    """The answer's tokens, where the server of the model knows them."""
    stop_text: str | None = field(default=None, repr=False)
    """The client's own text that ended the answer, where one did."""


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """The request that is answered."""

    body: JsonObject = field(repr=False)
    path: str = ""
    query: str = ""
    """Some dialects name model and way of streaming there."""


@dataclass(frozen=True, slots=True)
class WireResponse:
    """Bytes to send."""

    content_type: str
    pieces: tuple[bytes, ...] = field(repr=False)
    """The body; the events of a stream one by one."""
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers that belong to the answer."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    """More text of an answer."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call begins; its name is known."""

    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallPiece:
    """More of the arguments of the call that began last."""

    text: str = field(repr=False)


type Piece = TextPiece | CallStart | CallPiece


class AnswerStream(Protocol):
    """Writes one answer as it grows; each method returns the bytes to send now."""

    @property
    def content_type(self) -> str:
        """What the bytes are."""

    def start(self) -> bytes:
        """Return what precedes the first token."""

    def take(self, pieces: Sequence[Piece], token: SampledToken | None = None) -> bytes:
        """Return the events of what one token adds, perhaps none."""

    def end(self, answer: ModelAnswer) -> bytes:
        """Return what closes the stream of the finished ``answer``."""


class WholeCalls:
    """Holds a tool call back until its arguments are whole, for wires that send it in one piece."""

    def __init__(self) -> None:
        """Begin without a call."""
        self._open: ToolCallPart | None = None

    def take(self, pieces: Sequence[Piece]) -> list[TextPart | ToolCallPart]:
        """Return what the pieces complete."""
        found: list[TextPart | ToolCallPart] = []
        for piece in pieces:
            match piece:
                case TextPiece(text=text):
                    found += [*self.end(), TextPart(text)]
                case CallStart(call_id=call_id, name=name):
                    found += self.end()
                    self._open = ToolCallPart(call_id, name, "")
                case CallPiece(text=text):
                    assert self._open is not None  # noqa: S101 - a call begins with its name
                    written = f"{self._open.arguments}{text}"
                    self._open = ToolCallPart(self._open.call_id, self._open.name, written)
        return found

    def end(self) -> list[ToolCallPart]:
        """Return the call that was still open."""
        found, self._open = self._open, None
        return [] if found is None else [found]


class UnwritableError(ValueError):
    """The client's dialect has no writer."""


def new_id(prefix: str) -> str:
    """Return an identifier as providers make them."""
    return prefix + secrets.token_hex(12)


def as_json(value: JsonObject, *headers: tuple[str, str]) -> WireResponse:
    """Return an answer that is one JSON object."""
    return WireResponse("application/json", (json_bytes(value),), headers)


def as_events(events: list[bytes]) -> WireResponse:
    """Return an answer that is a stream of server-sent events."""
    return WireResponse(EVENTS, tuple(events))


def json_bytes(value: JsonObject) -> bytes:
    """Return JSON as providers send it; lone surrogates become ``?``."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def event(value: JsonObject, name: str | None = None) -> bytes:
    """Return one server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + json_bytes(value) + b"\n\n"


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


def ended(answer: ModelAnswer) -> str:
    """Return why the answer ended: ``tool``, ``length``, ``filter`` or ``stop``."""
    reason = (answer.finish_reason or "").lower()
    if reason in _LENGTH:
        return "length"
    if reason in _FILTER:
        return "filter"
    return "tool" if answer.message.tool_calls() else "stop"
