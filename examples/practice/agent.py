"""An ordinary tool-using agent on official SDKs; it knows its provider's address and nothing else.

One session: connect to the MCP server, list its tools, let the model call them until it answers.
A stream that breaks or a body that cannot be read is asked for again, as agents do.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import httpx

from examples.practice.prompts import SYSTEM_PROMPT

if TYPE_CHECKING:
    from mcp import ClientSession, Tool

MAX_STEPS = 6
MAX_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that the model asked for."""

    call_id: str
    name: str
    arguments: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the model."""

    response_id: str
    text: str = field(repr=False)
    calls: tuple[Call, ...]


@dataclass(slots=True)
class Outcome:
    """How a session ended."""

    answer: str | None = field(default=None, repr=False)
    """The agent's last words; None when it did not come to an end."""
    response_id: str | None = None
    """Of the last answer."""
    steps: int = 0
    asked_again: int = 0
    """Answers that broke on the way."""
    problem: str | None = None
    """Type of the error that ended the session."""


class BrokenAnswerError(Exception):
    """An answer that arrived damaged and may be asked for again."""


class Conversation(Protocol):
    """A conversation with one provider's API."""

    async def ask(self) -> Turn:
        """Ask for the next turn; the conversation changes only when the whole turn came.

        Raises:
            BrokenAnswerError: the answer broke on the way.
        """
        ...

    def add_results(self, results: list[tuple[Call, str, bool]]) -> None:
        """Tell the model what its tools answered: call, text, whether it is an error."""
        ...

    def add_words(self, text: str) -> None:
        """Tell the model what the person says next."""
        ...


async def solve(
    conversation: Conversation, tools: "ClientSession | None", outcome: Outcome
) -> None:
    """Work until the model answers without a tool call; the outcome is filled in on the way."""
    while outcome.steps < MAX_STEPS:
        turn = await _ask(conversation, outcome)
        outcome.steps += 1
        outcome.response_id = turn.response_id
        if tools is None or not turn.calls:
            outcome.answer = turn.text
            break
        results = [(call, *await _use(tools, call)) for call in turn.calls]
        conversation.add_results(results)


async def _ask(conversation: Conversation, outcome: Outcome) -> Turn:
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return await conversation.ask()
        except BrokenAnswerError:
            outcome.asked_again += 1
    return await conversation.ask()


async def _use(tools: "ClientSession", call: Call) -> tuple[str, bool]:
    result = await tools.call_tool(call.name, call.arguments)
    texts = [getattr(block, "text", "") for block in result.content]
    return "\n".join(texts), bool(result.isError)


@asynccontextmanager
async def tool_session(url: str, client: httpx.AsyncClient) -> "AsyncIterator[ClientSession]":
    """Open a session with an MCP server over streamable HTTP."""
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async with (
        streamable_http_client(url, http_client=client) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


def read_arguments(text: str) -> dict[str, Any]:
    """Read a tool call's arguments.

    Raises:
        BrokenAnswerError: they are not a JSON object.
    """
    try:
        arguments = json.loads(text)
    except ValueError:
        raise BrokenAnswerError("the tool call's arguments are not JSON") from None
    if not isinstance(arguments, dict):
        raise BrokenAnswerError("the tool call's arguments are not an object")
    return arguments


def openai_tools(tools: "list[Tool]") -> list[dict[str, Any]]:
    """Return MCP tools as chat completions take them."""
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def responses_tools(tools: "list[Tool]") -> list[dict[str, Any]]:
    """Return MCP tools as responses take them."""
    return [{"type": "function", "strict": False, **_function(tool)} for tool in tools]


def anthropic_tools(tools: "list[Tool]") -> list[dict[str, Any]]:
    """Return MCP tools as Anthropic messages take them."""
    return [
        {
            "name": tool.name,
            "description": tool.description or "",
            "input_schema": tool.inputSchema,
        }
        for tool in tools
    ]


def _function(tool: "Tool") -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description or "",
        "parameters": tool.inputSchema,
    }


__all__ = [
    "SYSTEM_PROMPT",
    "BrokenAnswerError",
    "Call",
    "Conversation",
    "Outcome",
    "Turn",
    "anthropic_tools",
    "openai_tools",
    "read_arguments",
    "responses_tools",
    "solve",
    "tool_session",
]
