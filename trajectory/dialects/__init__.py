"""Wire dialects: one module each, reading an exchange into a call.

``read_exchange`` is the one entry. It never raises: what no dialect knows, and what breaks its
dialect's rules, comes back as an opaque call with its problem in fixed words.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from trajectory.call import Call, CallKind
from trajectory.dialects.a2a import A2a
from trajectory.dialects.anthropic_messages import AnthropicMessages
from trajectory.dialects.bedrock_converse import BedrockConverse
from trajectory.dialects.bedrock_invoke import BedrockInvoke
from trajectory.dialects.control import Control
from trajectory.dialects.google_gemini import GoogleGemini
from trajectory.dialects.google_interactions import GoogleInteractions
from trajectory.dialects.hints import common_hints
from trajectory.dialects.mcp import Mcp
from trajectory.dialects.ollama import Ollama
from trajectory.dialects.openai_chat import OpenAIChat
from trajectory.dialects.openai_completions import OpenAICompletions
from trajectory.dialects.openai_inputs import OpenAIEmbeddings, OpenAIModerations
from trajectory.dialects.openai_realtime import OpenAIRealtime
from trajectory.dialects.openai_responses import OpenAIResponses
from trajectory.dialects.people import with_people
from trajectory.dialects.reading import Yields
from trajectory.dialects.websockets import is_conversation, turns
from trajectory.dialects.wire import UnreadableError, response_bytes
from trajectory.exchange import Exchange, ExchangeOutcome


class Dialect(Protocol):
    """One way of speaking on the wire."""

    @property
    def name(self) -> str:
        """What ``Call.dialect`` says."""

    @property
    def yields(self) -> Yields:
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
    OpenAICompletions(),
    OpenAIEmbeddings(),
    OpenAIModerations(),
    Control(),
    A2a(),
    Mcp(),
)
"""In the order in which they are asked."""


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
        return _ended(_as_served(with_people(dialect.read(exchange))))
    except UnreadableError as error:
        note = exchange.capture_note
        return _opaque(exchange, name, f"capture:{note}" if note else str(error.args[0]))
    except Exception as error:  # noqa: BLE001 - hostile bytes must cost one row, never the batch
        return _opaque(exchange, name, f"dialect:{type(error).__name__}")


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


__all__ = ["DIALECTS", "Dialect", "UnreadableError", "Yields", "read_calls", "read_exchange"]
