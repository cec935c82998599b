"""All dialects: which one reads an exchange, and which one writes an answer.

``read_exchange`` is the one entry for reading. It never raises: what no dialect knows, and what
breaks its dialect's rules, becomes an opaque call with its problem in fixed words.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from trajectory.call import Call, CallKind
from trajectory.canonical import JsonObject
from trajectory.dialects.a2a import A2a
from trajectory.dialects.agents import with_agent
from trajectory.dialects.anthropic_messages.read import AnthropicMessages
from trajectory.dialects.anthropic_messages.write import open_stream as stream_anthropic_messages
from trajectory.dialects.anthropic_messages.write import write as write_anthropic_messages
from trajectory.dialects.bedrock_converse.read import BedrockConverse
from trajectory.dialects.bedrock_converse.write import write as write_bedrock_converse
from trajectory.dialects.bedrock_invoke.read import BedrockInvoke
from trajectory.dialects.bedrock_invoke.write import write as write_bedrock_invoke
from trajectory.dialects.control import Control
from trajectory.dialects.google_gemini.read import GoogleGemini
from trajectory.dialects.google_gemini.write import open_stream as stream_google_gemini
from trajectory.dialects.google_gemini.write import write as write_google_gemini
from trajectory.dialects.google_interactions.read import GoogleInteractions
from trajectory.dialects.google_interactions.write import write as write_google_interactions
from trajectory.dialects.hints import common_hints, with_people
from trajectory.dialects.mcp import Mcp
from trajectory.dialects.mistral_conversations import MistralConversations
from trajectory.dialects.ollama.read import Ollama
from trajectory.dialects.ollama.write import open_stream as stream_ollama
from trajectory.dialects.ollama.write import write as write_ollama
from trajectory.dialects.openai_chat.read import OpenAIChat
from trajectory.dialects.openai_chat.write import open_stream as stream_openai_chat
from trajectory.dialects.openai_chat.write import write as write_openai_chat
from trajectory.dialects.openai_completions.read import OpenAICompletions
from trajectory.dialects.openai_completions.write import open_stream as stream_openai_completions
from trajectory.dialects.openai_completions.write import write as write_openai_completions
from trajectory.dialects.openai_inputs import OpenAIEmbeddings, OpenAIModerations
from trajectory.dialects.openai_realtime import OpenAIRealtime
from trajectory.dialects.openai_responses.read import OpenAIResponses
from trajectory.dialects.openai_responses.write import open_stream as stream_openai_responses
from trajectory.dialects.openai_responses.write import write as write_openai_responses
from trajectory.dialects.reader import DialectOutput
from trajectory.dialects.websocket_turns import is_conversation, turns
from trajectory.dialects.wire import UnreadableError, response_bytes
from trajectory.dialects.writer import (
    AnsweredRequest,
    AnswerStream,
    ModelAnswer,
    UnwritableError,
    WireResponse,
)
from trajectory.exchange import (
    ClientIdentity,
    Exchange,
    ExchangeOutcome,
    Headers,
    HttpRequest,
    SpoolPosition,
)


class Dialect(Protocol):
    """One way of speaking on the wire."""

    @property
    def name(self) -> str:
        """What ``Call.dialect`` says."""

    @property
    def yields(self) -> DialectOutput:
        """What its calls hold; the documents' table is made from it."""

    def matches(self, exchange: Exchange) -> bool:
        """Tell, cheaply and without raising, whether this dialect reads the exchange."""

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange.

        Raises:
            UnreadableError: it breaks the dialect's rules beyond reading.
        """


DIALECTS: tuple[Dialect, ...] = (
    OpenAIChat(),
    OpenAIResponses(),
    OpenAIRealtime(),
    AnthropicMessages(),
    GoogleGemini(),
    GoogleInteractions(),
    BedrockConverse(),
    BedrockInvoke(),
    Ollama(),
    MistralConversations(),
    OpenAICompletions(),
    OpenAIEmbeddings(),
    OpenAIModerations(),
    Control(),
    A2a(),
    Mcp(),
)
"""In the order in which they are asked."""

WRITERS: dict[str, Callable[[ModelAnswer, AnsweredRequest], WireResponse]] = {
    "openai.chat": write_openai_chat,
    "openai.completions": write_openai_completions,
    "openai.responses": write_openai_responses,
    "anthropic.messages": write_anthropic_messages,
    "google.gemini": write_google_gemini,
    "google.interactions": write_google_interactions,
    "bedrock.converse": write_bedrock_converse,
    "bedrock.invoke": write_bedrock_invoke,
    "ollama": write_ollama,
}
"""By the dialect's name; tools have none."""

STREAMS: dict[str, Callable[[ModelAnswer, AnsweredRequest], AnswerStream | None]] = {
    "openai.chat": stream_openai_chat,
    "openai.completions": stream_openai_completions,
    "openai.responses": stream_openai_responses,
    "anthropic.messages": stream_anthropic_messages,
    "google.gemini": stream_google_gemini,
    "ollama": stream_ollama,
}
"""By the dialect's name: what writes an answer as it grows, for those that servers of models speak."""

_LAST_WORDS = (b"[DONE]", b'"done":true', b'"done": true')
"""How streams end whose servers give no reason for it."""


def read_exchange(exchange: Exchange, configured: Sequence[Dialect] = ()) -> Call:
    """Read an exchange by the first dialect that knows it; never raises, whatever the bytes.

    ``configured`` are dialects that an installation adds; they are asked first.
    """
    asked = (*configured, *DIALECTS)
    dialect = next((dialect for dialect in asked if dialect.matches(exchange)), None)
    name = dialect.name if dialect is not None else "opaque"
    if exchange.outcome is ExchangeOutcome.REFUSED:
        return Call(exchange, name, CallKind.CONTROL, error="refused by the gateway")
    if dialect is None:
        return _opaque(exchange, name, "dialect:unknown")
    try:
        return _ended(_as_served(with_agent(with_people(dialect.read(exchange)))))
    except UnreadableError as error:
        note = exchange.capture_note
        return _opaque(exchange, name, f"capture:{note}" if note else str(error.args[0]))
    except Exception as error:  # noqa: BLE001 - hostile bytes must cost one row, never the batch
        return _opaque(exchange, name, f"dialect:{type(error).__name__}")


def read_request(path: str, headers: Headers, body: bytes, query: str = "") -> Call:
    """Read a request that is to be answered here, as it is read where a gateway captured it."""
    now = datetime.now(UTC)
    return read_exchange(
        Exchange(
            exchange_id="0" * 32,
            client=ClientIdentity("-", "-", "-", "-"),
            route="-",
            mode="base_url",
            upstream="http://-",
            started_at=now,
            first_byte_at=None,
            ended_at=now,
            request=HttpRequest("POST", path, query, headers, body),
            response=None,
            outcome=ExchangeOutcome.COMPLETE,
            position=SpoolPosition("-", 0, 0),
        )
    )


def read_calls(exchange: Exchange, configured: Sequence[Dialect] = ()) -> tuple[Call, ...]:
    """Read an exchange that may hold several calls: one for each turn of a conversation.

    What is no such conversation gives exactly one call. Never raises.
    """
    if not is_conversation(exchange):
        return (read_exchange(exchange, configured),)
    try:
        found = turns(exchange)
    except UnreadableError as error:
        note = exchange.capture_note
        return (_opaque(exchange, "opaque", f"capture:{note}" if note else str(error.args[0])),)
    except Exception as error:  # noqa: BLE001 - as in read_exchange
        return (_opaque(exchange, "opaque", f"dialect:{type(error).__name__}"),)
    if not found and exchange.capture_note:
        return (_opaque(exchange, "opaque", f"capture:{exchange.capture_note}"),)
    if not found:
        return (Call(exchange, Control.name, CallKind.CONTROL, hints=common_hints(exchange)),)
    return tuple(read_exchange(turn) for turn in found)


def _as_served(call: Call) -> Call:
    """The gateway knows which registered version it asked; what an engine calls itself does not count."""
    exchange = call.exchange
    if not exchange.served or call.kind is not CallKind.MODEL or exchange.response is None:
        return call
    return replace(call, model_served=exchange.served)


def _ended(call: Call) -> Call:
    """Say it where a stream was closed in good order, but before the model's last word."""
    exchange = call.exchange
    if (
        not call.streamed
        or call.kind is not CallKind.MODEL
        or (call.finish_reason or call.error) is not None
        or exchange.outcome is not ExchangeOutcome.COMPLETE
        or any(mark in response_bytes(exchange) for mark in _LAST_WORDS)
    ):
        return call
    return replace(call, error="the stream ended early")


def _opaque(exchange: Exchange, dialect: str, problem: str) -> Call:
    return Call(exchange, dialect, CallKind.OPAQUE, problem=problem)


def write_answer(
    dialect: str, answer: ModelAnswer, request: JsonObject, *, path: str = "", query: str = ""
) -> WireResponse:
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
    if dialect not in WRITERS:
        raise UnwritableError(
            f"answers of {dialect!r} cannot be written; known: {', '.join(WRITERS)}"
        )
    return WRITERS[dialect](answer, AnsweredRequest(request, path, query))
