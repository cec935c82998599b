"""The wire formats of the practice provider: what a request asks for, and how its answer is written.

Requests are read here, strictly, as a small model can answer them; the writers are the product's own.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Protocol

from train.types import Sampling
from trajectory.canonical import JsonObject
from trajectory.dialects.anthropic_messages import write as anthropic_messages
from trajectory.dialects.openai_chat import write as openai_chat
from trajectory.dialects.openai_responses import write as openai_responses
from trajectory.dialects.writer import AnswerStream, ModelAnswer
from trajectory.message import Message

DEFAULT_MAX_TOKENS = 128
_KEPT_CONVERSATIONS = 4096
_ROLES = ("system", "developer", "user", "assistant", "tool")
_TEXT_KINDS = ("input_text", "output_text", "text")


class WireError(Exception):
    """A request that is answered with an error in the provider's own shape."""

    def __init__(self, status: int, kind: str, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.code = code


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request for one answer."""

    model: str
    messages: list[dict[str, Any]] = field(repr=False)
    """As the chat template takes them."""
    with_tools: bool
    sampling: Sampling
    stream: bool
    body: dict[str, Any] = field(repr=False)
    """The request as it came, for fields that the answer repeats."""


class Dialect(Protocol):
    """One wire format."""

    @property
    def name(self) -> str:
        """As the counts call it."""

    @property
    def response_id(self) -> str:
        """What the ids of responses begin with."""

    @property
    def call_id(self) -> str:
        """What the ids of tool calls begin with."""

    def read(self, body: dict[str, Any]) -> CompletionRequest:
        """Read a request.

        Raises:
            WireError: the request is not one that the API takes.
        """

    def stream(self, begun: ModelAnswer, ask: CompletionRequest) -> AnswerStream:
        """Return what writes the answer as it grows."""

    def whole(self, answer: ModelAnswer, ask: CompletionRequest) -> JsonObject:
        """Return the body of an answer that is not streamed."""

    def error(self, error: WireError) -> JsonObject:
        """Return the body of an error."""

    def answered(self, answer: ModelAnswer, ask: CompletionRequest) -> None:
        """Take note of a finished answer."""


class OpenAIChat:
    """``POST /v1/chat/completions``."""

    name = "openai.chat"
    response_id = openai_chat.RESPONSE_ID
    call_id = openai_chat.CALL_ID

    def read(self, body: dict[str, Any]) -> CompletionRequest:
        """Read a request."""
        if body.get("n") not in (None, 1):
            raise WireError(400, "invalid_request_error", "n: only one choice is supported")
        top = body.get("top_logprobs") or 0
        if not isinstance(top, int) or not 0 <= top <= 20:
            raise WireError(400, "invalid_request_error", "top_logprobs must be between 0 and 20")
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        return CompletionRequest(
            model=_need(body, "model", str),
            messages=[_chat_message(m) for m in _need(body, "messages", list)],
            with_tools=bool(body.get("tools")) and body.get("tool_choice") != "none",
            sampling=_sampling(body, max_tokens=limit, top_logprobs=top),
            stream=bool(body.get("stream")),
            body=body,
        )

    def stream(self, begun: ModelAnswer, ask: CompletionRequest) -> AnswerStream:
        """Return what writes the answer as it grows."""
        return openai_chat.ChatStream(begun, ask.body)

    def whole(self, answer: ModelAnswer, ask: CompletionRequest) -> JsonObject:
        """Return a ``chat.completion``."""
        return openai_chat.whole(answer, ask.body)

    def error(self, error: WireError) -> JsonObject:
        """Return OpenAI's error body."""
        return openai_chat.error_body(error.kind, error.message, error.code)

    def answered(self, answer: ModelAnswer, ask: CompletionRequest) -> None:
        """Nothing is kept: clients send the whole conversation again."""


class OpenAIResponses:
    """``POST /v1/responses``; remembers conversations for ``previous_response_id``."""

    name = "openai.responses"
    response_id = openai_responses.RESPONSE_ID
    call_id = openai_responses.CALL_ID

    def __init__(self) -> None:
        self._conversations: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()

    def read(self, body: dict[str, Any]) -> CompletionRequest:
        """Read a request."""
        messages = self._earlier(body.get("previous_response_id"))
        if body.get("instructions"):
            messages = [{"role": "system", "content": str(body["instructions"])}, *messages]
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if not isinstance(items, list) or not items:
            raise WireError(400, "invalid_request_error", "input: field required")
        for item in items:
            _add_item(messages, item)
        return CompletionRequest(
            model=_need(body, "model", str),
            messages=messages,
            with_tools=bool(body.get("tools")) and body.get("tool_choice") != "none",
            sampling=_sampling(body, max_tokens=body.get("max_output_tokens")),
            stream=bool(body.get("stream")),
            body=body,
        )

    def stream(self, begun: ModelAnswer, ask: CompletionRequest) -> AnswerStream:
        """Return what writes the answer as it grows."""
        return openai_responses.ResponsesStream(begun, ask.body)

    def whole(self, answer: ModelAnswer, ask: CompletionRequest) -> JsonObject:
        """Return a ``response``."""
        return openai_responses.whole(answer, ask.body)

    def error(self, error: WireError) -> JsonObject:
        """Return OpenAI's error body."""
        return openai_chat.error_body(error.kind, error.message, error.code)

    def answered(self, answer: ModelAnswer, ask: CompletionRequest) -> None:
        """Keep the conversation, unless the client forbade it; the oldest ones are forgotten."""
        if ask.body.get("store") is False:
            return
        # Instructions hold for one response only, as the API has it.
        kept = ask.messages[1:] if ask.body.get("instructions") else ask.messages
        self._conversations[answer.response_id] = [*kept, _said(answer.message)]
        while len(self._conversations) > _KEPT_CONVERSATIONS:
            self._conversations.popitem(last=False)

    def _earlier(self, response_id: Any) -> list[dict[str, Any]]:
        if response_id is None:
            return []
        if response_id not in self._conversations:
            raise WireError(
                400,
                "invalid_request_error",
                f"Previous response with id '{response_id}' not found.",
                code="previous_response_not_found",
            )
        return list(self._conversations[response_id])


class AnthropicMessages:
    """``POST /v1/messages``."""

    name = "anthropic.messages"
    response_id = anthropic_messages.RESPONSE_ID
    call_id = anthropic_messages.CALL_ID

    def read(self, body: dict[str, Any]) -> CompletionRequest:
        """Read a request."""
        messages: list[dict[str, Any]] = []
        if body.get("system"):
            messages.append({"role": "system", "content": _text(body["system"])})
        for message in _need(body, "messages", list):
            messages.extend(_anthropic_messages(message))
        choice = (body.get("tool_choice") or {}).get("type")
        return CompletionRequest(
            model=_need(body, "model", str),
            messages=messages,
            with_tools=bool(body.get("tools")) and choice != "none",
            sampling=_sampling(body, max_tokens=_need(body, "max_tokens", int)),
            stream=bool(body.get("stream")),
            body=body,
        )

    def stream(self, begun: ModelAnswer, ask: CompletionRequest) -> AnswerStream:
        """Return what writes the answer as it grows."""
        return anthropic_messages.MessagesStream(begun, ask.body)

    def whole(self, answer: ModelAnswer, ask: CompletionRequest) -> JsonObject:  # noqa: ARG002 - all formats alike
        """Return a ``message``."""
        return anthropic_messages.whole(answer)

    def error(self, error: WireError) -> JsonObject:
        """Return Anthropic's error body."""
        return anthropic_messages.error_body(error.kind, error.message)

    def answered(self, answer: ModelAnswer, ask: CompletionRequest) -> None:
        """Nothing is kept: clients send the whole conversation again."""


def _chat_message(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise WireError(400, "invalid_request_error", f"role must be one of {', '.join(_ROLES)}")
    read: dict[str, Any] = {"role": message["role"], "content": _text(message.get("content"))}
    if message.get("tool_calls"):
        read["tool_calls"] = [
            _call(call["function"]["name"], call["function"]["arguments"])
            for call in message["tool_calls"]
        ]
    return read


def _add_item(messages: list[dict[str, Any]], item: Any) -> None:
    """Append one input item; a text and calls of one turn become one assistant message."""
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if kind == "message":
        messages.append(
            {"role": item.get("role"), "content": _text(item.get("content"), kinds=_TEXT_KINDS)}
        )
    elif kind == "function_call":
        call = _call(item["name"], item["arguments"])
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": ""})
        messages[-1] = {
            **messages[-1],
            "tool_calls": [*messages[-1].get("tool_calls", []), call],
        }
    elif kind == "function_call_output":
        messages.append({"role": "tool", "content": _text(item.get("output"), kinds=_TEXT_KINDS)})
    elif kind != "reasoning":
        raise WireError(400, "invalid_request_error", f"input item type {kind!r} is not supported")


def _anthropic_messages(message: Any) -> list[dict[str, Any]]:
    """Return a message as template messages: each tool result is a message of its own."""
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
        raise WireError(400, "invalid_request_error", "messages: role must be user or assistant")
    content = message.get("content")
    if isinstance(content, str):
        return [{"role": message["role"], "content": content}]
    if not isinstance(content, list):
        raise WireError(400, "invalid_request_error", "messages: content must be text or a list")
    results = [
        {"role": "tool", "content": _text(block.get("content"))}
        for block in content
        if block.get("type") == "tool_result"
    ]
    calls = [
        _call(block["name"], block["input"]) for block in content if block.get("type") == "tool_use"
    ]
    rest = [b for b in content if b.get("type") not in ("tool_result", "tool_use", "thinking")]
    said: dict[str, Any] = {"role": message["role"], "content": _text(rest)}
    if calls:
        said["tool_calls"] = calls
    return [*results, said] if rest or calls or not results else results


def _said(message: Message) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "assistant", "content": message.text()}
    if calls := message.tool_calls():
        said["tool_calls"] = [_call(call.name, call.arguments) for call in calls]
    return said


def _call(name: str, arguments: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}}


def _sampling(body: dict[str, Any], *, max_tokens: Any, top_logprobs: int = 0) -> Sampling:
    """Read the sampling parameters that all formats share.

    Raises:
        WireError: a value is out of range.
    """
    temperature, top_p = body.get("temperature"), body.get("top_p")
    temperature = 1.0 if temperature is None else temperature
    top_p = 1.0 if top_p is None else top_p
    limit = DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
    if not _is_number(temperature) or not 0 <= temperature <= 2:
        raise WireError(400, "invalid_request_error", "temperature must be between 0 and 2")
    if not _is_number(top_p) or not 0 < top_p <= 1:
        raise WireError(400, "invalid_request_error", "top_p must be above 0 and at most 1")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise WireError(400, "invalid_request_error", "the token limit must be at least 1")
    seed = body.get("seed")
    return Sampling(
        temperature=float(temperature),
        top_p=float(top_p),
        max_tokens=limit,
        seed=seed if isinstance(seed, int) else None,
        top_logprobs=top_logprobs,
    )


def _need(body: dict[str, Any], name: str, kind: type) -> Any:
    """Return a required field.

    Raises:
        WireError: it is missing or of another type.
    """
    value = body.get(name)
    if not isinstance(value, kind) or not value:
        raise WireError(400, "invalid_request_error", f"{name}: field required")
    return value


def _text(content: Any, *, kinds: tuple[str, ...] = ("text",)) -> str:
    """Return content, given as text or as a list of text parts, as text.

    Raises:
        WireError: a part that a text model cannot read.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise WireError(400, "invalid_request_error", "content must be text or a list of parts")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") not in kinds:
            raise WireError(400, "invalid_request_error", "this model reads text only")
        texts.append(str(part.get("text", "")))
    return "\n".join(texts)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
