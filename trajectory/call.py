"""A call: one exchange read by its dialect, still raw, not yet placed in a trajectory."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple

from trajectory.canonical import JsonObject, JsonValue
from trajectory.exchange import Exchange
from trajectory.message import Message


class CallKind(StrEnum):
    """What a call is for the trajectory it belongs to."""

    MODEL = "model"
    """One call of a language model: becomes a step."""
    TOOL = "tool"
    """One deterministic dispatch (an MCP ``tools/call``): becomes a step."""
    CONTROL = "control"
    """Traffic without content to learn from (MCP ``initialize``, model listings): ledger only."""
    OPAQUE = "opaque"
    """Not understood, or broken beyond reading: quarantined with its reason."""


ELSEWHERE = "elsewhere"
"""In ``ext.answer``: what was asked for did not come with this exchange."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the provider reported them; None where it did not."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TokenCapture:
    """Exact tokens from the engine; never made by re-tokenising."""

    prompt_token_ids: tuple[int, ...] | None
    completion_token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    """One per completion token, natural log, of the sampled token."""


type HintKind = Literal["session", "parent", "task", "group", "response", "agent"]


@dataclass(frozen=True, slots=True)
class SessionHint:
    """A name for the session that the client itself sent, strongest sources first in a call."""

    source: str
    """header:x-headrace-session | url | traceparent | client:<header or field> | previous_response_id …"""
    value: str
    kind: HintKind = "session"


@dataclass(frozen=True, slots=True)
class ToolDispatch:
    """One execution of a tool, seen on the wire (MCP ``tools/call``)."""

    name: str
    arguments: JsonValue = field(repr=False)
    result: JsonValue = field(repr=False)
    is_error: bool
    server: str
    """scheme://host:port/path of the tool server."""


class SpanName(NamedTuple):
    """What tells a span from all others of an application."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """A span as far as it says whom the calls of its trace belong to."""

    name: SpanName
    parent_span_id: str | None
    people: tuple[str, ...] = field(repr=False)
    """Ids of the end user that it names, the strongest first."""
    start: int
    """Nanoseconds since 1970."""
    end: int


@dataclass(frozen=True, slots=True)
class Call:
    """What a dialect read from an exchange. Everything here is raw: governance has not run."""

    exchange: Exchange
    dialect: str
    """openai.chat, anthropic.messages, mcp …; ``opaque`` where none was known"""
    kind: CallKind
    context: tuple[Message, ...] = ()
    """The whole conversation that was sent, system prompt first."""
    output: Message | None = None
    """The assistant's answer; partial when the stream was cut."""
    tools: tuple[JsonObject, ...] = ()
    """Tool definitions as sent."""
    sampling: JsonObject = field(default_factory=dict)
    """temperature, top_p, max_tokens, seed, … as really sent; keys in the dialect's own words."""
    model_requested: str | None = None
    model_served: str | None = None
    response_id: str | None = None
    finish_reason: str | None = None
    usage: Usage = Usage()
    tokens: TokenCapture | None = None
    mean_logprob: float | None = None
    """Mean natural log of the probability of the answer's tokens, as the provider told it."""
    streamed: bool = False
    hints: tuple[SessionHint, ...] = ()
    end_user: str | None = field(default=None, repr=False)
    """The end user's identifier as the client sent it (``user``, ``metadata.user_id`` …)."""
    agent: str | None = None
    """What the agent calls itself, in a header or a span's attribute."""
    acts_as: str | None = None
    """The role in which it acts: target of a hand-off, participant's name, A2A agent."""
    also_named: tuple[str, ...] = field(default=(), repr=False)
    """Other identifiers that the request gives of people."""
    purposes: tuple[str, ...] | None = None
    """What an imported document allows it for at most; None where nothing says."""
    subjects: tuple[str, ...] = ()
    """Keyed pseudonyms by which an imported document names people."""
    span: SpanName | None = None
    """The span that the call is, or was made within; None outside of traces."""
    spans: tuple[TraceSpan, ...] = ()
    """Of a trace export: all its spans."""
    retry_count: int = 0
    """What the client says of itself (``x-stainless-retry-count``)."""
    dispatch: ToolDispatch | None = None
    error: str | None = field(default=None, repr=False)
    """Error type and message of the provider or tool, raw."""
    problem: str | None = None
    """Why the exchange could not be read (fixed words, never content); set when ``kind`` is OPAQUE."""
    ext: JsonObject = field(default_factory=dict)
    """Request and response fields that the dialect does not know, kept losslessly."""

    @property
    def people(self) -> tuple[str, ...]:
        """Return everybody whom the request names, the end user first."""
        return (*([self.end_user] if self.end_user else []), *self.also_named)
