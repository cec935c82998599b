"""Conversations over the official SDKs: OpenAI chat completions and responses, Anthropic messages."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from examples.practice.agent import (
    BrokenAnswerError,
    Call,
    Conversation,
    Turn,
    anthropic_tools,
    openai_tools,
    read_arguments,
    responses_tools,
)
from examples.practice.prompts import SYSTEM_PROMPT

if TYPE_CHECKING:
    from mcp import Tool

type Hook = Callable[[Any], Awaitable[None]]

DESK_PROMPT = "You answer yes or no."
DESK_QUESTION = "Does this customer get the trade price? Answer yes or no."
"""What a desk without tools is told and asked about each order."""
DESK_TOKENS = 1
"""Of its answer: the word, and nothing of what a chatty model says behind it."""

CLIENTS = ("openai-chat", "openai-responses", "anthropic")


@dataclass(frozen=True, slots=True)
class Style:
    """How a conversation asks."""

    model: str
    stream: bool
    temperature: float | None
    """None leaves it to the provider."""
    max_tokens: int = 256
    seed: int | None = None
    """Of what chat completions draw, turn by turn; None leaves it to the provider."""
    session: str | None = None
    """What the client calls its conversation, in a header; None: it names none."""


def make_sdk(
    kind: str,
    on_request: Hook,
    *,
    on_response: Hook | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    direct: bool = False,
) -> Any:
    """Return the SDK's client; address and key come from its own environment variables.

    Args:
        kind: one of ``CLIENTS``.
        on_request: called before each HTTP request, those that the SDK repeats included.
        on_response: called with each HTTP response before the SDK reads it.
        base_url: instead of the environment variable.
        api_key: instead of the environment variable.
        direct: whatever proxy the environment names is passed by.

    Raises:
        ValueError: there is no such kind of client.
    """
    hooks = {"request": [on_request], "response": [on_response] if on_response else []}
    if kind.startswith("openai"):
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        client = DefaultAsyncHttpxClient(event_hooks=hooks, trust_env=not direct)
        return AsyncOpenAI(http_client=client, base_url=base_url, api_key=api_key, max_retries=4)
    if kind == "anthropic":
        from anthropic import AsyncAnthropic
        from anthropic import DefaultAsyncHttpxClient as AnthropicHttpxClient

        client = AnthropicHttpxClient(event_hooks=hooks, trust_env=not direct)
        return AsyncAnthropic(http_client=client, base_url=base_url, api_key=api_key, max_retries=4)
    raise ValueError(f"unknown client {kind!r}; valid: {', '.join(CLIENTS)}")


def converse(kind: str, sdk: Any, style: Style, prompt: str, tools: "list[Tool]") -> Conversation:
    """Begin a conversation; one without tools asks for a decision about the order."""
    if not tools:
        prompt = f"{prompt}\n{DESK_QUESTION}"
    kinds: dict[str, Any] = {
        "openai-chat": ChatConversation,
        "openai-responses": ResponsesConversation,
        "anthropic": MessagesConversation,
    }
    conversation: Conversation = kinds[kind](sdk, style, prompt, tools)
    return conversation


class ChatConversation:
    """Over ``client.chat.completions``."""

    def __init__(self, sdk: Any, style: Style, prompt: str, tools: "list[Tool]") -> None:
        self._sdk = sdk
        self._style = style
        self._messages: list[dict[str, Any]] = [
            {"role": "system", "content": _told(tools)},
            {"role": "user", "content": prompt},
        ]
        self._fixed = {
            "model": style.model,
            **({"tools": openai_tools(tools)} if tools else {}),
            "max_completion_tokens": style.max_tokens,
            **_temperature(style),
            **_session(style),
        }

    async def ask(self) -> Turn:
        """Ask for the next turn."""
        try:
            response = await self._complete()
        except _broken() as error:
            raise BrokenAnswerError(type(error).__name__) from error
        message = response.choices[0].message
        calls = tuple(
            Call(call.id, call.function.name, read_arguments(call.function.arguments))
            for call in message.tool_calls or ()
        )
        said: dict[str, Any] = {"role": "assistant", "content": message.content}
        if message.tool_calls:
            said["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {
                        "name": call.function.name,
                        "arguments": call.function.arguments,
                    },
                }
                for call in message.tool_calls
            ]
        self._messages.append(said)
        return Turn(response.id, message.content or "", calls)

    async def _complete(self) -> Any:
        completions = self._sdk.chat.completions
        fixed = dict(self._fixed)
        if self._style.seed is not None:
            fixed["seed"] = self._style.seed + len(self._messages)
        if not self._style.stream:
            return await completions.create(messages=self._messages, **fixed)
        options = {"include_usage": True}
        async with completions.stream(
            messages=self._messages, stream_options=options, **fixed
        ) as stream:
            return await stream.get_final_completion()

    def add_results(self, results: list[tuple[Call, str, bool]]) -> None:
        """Tell the model what its tools answered."""
        self._messages.extend(
            {"role": "tool", "tool_call_id": call.call_id, "content": text}
            for call, text, _ in results
        )

    def add_words(self, text: str) -> None:
        """Tell the model what the person says next."""
        self._messages.append({"role": "user", "content": text})


class ResponsesConversation:
    """Over ``client.responses``; the whole conversation is sent each time."""

    def __init__(self, sdk: Any, style: Style, prompt: str, tools: "list[Tool]") -> None:
        self._sdk = sdk
        self._style = style
        self._input: list[Any] = [{"role": "user", "content": prompt}]
        self._fixed = {
            "model": style.model,
            "instructions": _told(tools),
            **({"tools": responses_tools(tools)} if tools else {}),
            "max_output_tokens": style.max_tokens,
            "store": False,
            **_temperature(style),
            **_session(style),
        }

    async def ask(self) -> Turn:
        """Ask for the next turn."""
        try:
            response = await self._respond()
        except _broken() as error:
            raise BrokenAnswerError(type(error).__name__) from error
        calls = tuple(
            Call(item.call_id, item.name, read_arguments(item.arguments))
            for item in response.output
            if item.type == "function_call"
        )
        self._input.extend(item.model_dump(exclude_none=True) for item in response.output)
        return Turn(response.id, response.output_text, calls)

    async def _respond(self) -> Any:
        responses = self._sdk.responses
        if not self._style.stream:
            return await responses.create(input=self._input, **self._fixed)
        async with responses.stream(input=self._input, **self._fixed) as stream:
            return await stream.get_final_response()

    def add_results(self, results: list[tuple[Call, str, bool]]) -> None:
        """Tell the model what its tools answered."""
        self._input.extend(
            {"type": "function_call_output", "call_id": call.call_id, "output": text}
            for call, text, _ in results
        )

    def add_words(self, text: str) -> None:
        """Tell the model what the person says next."""
        self._input.append({"role": "user", "content": text})


class MessagesConversation:
    """Over ``client.messages`` of Anthropic's SDK."""

    def __init__(self, sdk: Any, style: Style, prompt: str, tools: "list[Tool]") -> None:
        self._sdk = sdk
        self._style = style
        self._messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
        self._fixed = {
            "model": style.model,
            "system": _told(tools),
            **({"tools": anthropic_tools(tools)} if tools else {}),
            "max_tokens": style.max_tokens,
            # The SDK no longer names sampling parameters; the API takes them all the same.
            "extra_body": _temperature(style),
            **_session(style),
        }

    async def ask(self) -> Turn:
        """Ask for the next turn."""
        try:
            message = await self._create()
        except _broken() as error:
            raise BrokenAnswerError(type(error).__name__) from error
        blocks = [block.model_dump(exclude_none=True) for block in message.content]
        calls = tuple(
            Call(block["id"], block["name"], dict(block["input"]))
            for block in blocks
            if block["type"] == "tool_use"
        )
        self._messages.append({"role": "assistant", "content": blocks or "…"})
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        return Turn(message.id, text, calls)

    async def _create(self) -> Any:
        messages = self._sdk.messages
        if not self._style.stream:
            return await messages.create(messages=self._messages, **self._fixed)
        async with messages.stream(messages=self._messages, **self._fixed) as stream:
            return await stream.get_final_message()

    def add_results(self, results: list[tuple[Call, str, bool]]) -> None:
        """Tell the model what its tools answered."""
        blocks = [
            {
                "type": "tool_result",
                "tool_use_id": call.call_id,
                "content": text,
                **({"is_error": True} if failed else {}),
            }
            for call, text, failed in results
        ]
        self._messages.append({"role": "user", "content": blocks})

    def add_words(self, text: str) -> None:
        """Tell the model what the person says next."""
        self._messages.append({"role": "user", "content": text})


def _told(tools: "list[Tool]") -> str:
    return SYSTEM_PROMPT if tools else DESK_PROMPT


def _temperature(style: Style) -> dict[str, float]:
    return {} if style.temperature is None else {"temperature": style.temperature}


def _session(style: Style) -> dict[str, dict[str, str]]:
    return {} if style.session is None else {"extra_headers": {"x-headrace-session": style.session}}


def _broken() -> tuple[type[Exception], ...]:
    """Return what the SDKs raise when an answer breaks on the way, or their own retries gave up."""
    import anthropic
    import httpx2
    import openai

    return (
        httpx2.TransportError,
        ValueError,  # a body or arguments that are no JSON
        openai.APIConnectionError,
        openai.APIResponseValidationError,
        openai.LengthFinishReasonError,
        anthropic.APIConnectionError,
        anthropic.APIResponseValidationError,
    )
