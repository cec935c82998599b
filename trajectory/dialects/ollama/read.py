"""Ollama's own interface: ``/api/chat`` and ``/api/generate``, streamed as JSON lines."""

from dataclasses import replace

from trajectory.call import Call, CallKind, Usage
from trajectory.canonical import JsonObject
from trajectory.dialects.reader import (
    CallNames,
    DialectOutput,
    assistant,
    mean_logprob,
    model_call,
    posted_to,
)
from trajectory.dialects.resends import one_object, read_tools
from trajectory.dialects.response import read_response
from trajectory.dialects.wire import (
    as_integer,
    as_list,
    as_object,
    as_text,
    media_bytes,
    names,
    objects,
    only,
    request_json,
    without,
)
from trajectory.exchange import Exchange
from trajectory.message import (
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

_SAMPLING = names("format think keep_alive logprobs top_logprobs raw template")
_REQUEST_READ = _SAMPLING | names("model messages prompt system images tools stream options suffix")
# ``context`` holds token ids of the whole conversation: they decode to text and are not kept.
_RESPONSE_READ = names(
    "model message response thinking done done_reason prompt_eval_count eval_count error context"
    " created_at logprobs tool_calls"
)


class Ollama:
    """``POST …/api/chat`` and ``…/api/generate``."""

    name = "ollama"
    yields = DialectOutput(
        "`POST …/api/chat`, `…/api/generate`",
        CallKind.MODEL,
        streams="JSON lines",
        text=True,
        reasoning=True,
        tool_calls=True,
        usage=True,
        logprobs="their mean",
        errors="status and body, `error` line",
    )

    def matches(self, exchange: Exchange) -> bool:
        """Tell by the path."""
        return posted_to(exchange, "/api/chat", "/api/generate")

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; see :func:`trajectory.dialects.read_exchange`."""
        request = request_json(exchange)
        response = read_response(exchange, assemble_lines)
        value = response.value or {}
        ext = without(request, _REQUEST_READ | {"context"})
        if suffix := as_text(request.get("suffix")):
            ext["suffix"] = suffix
        rest = without(value, _RESPONSE_READ)
        call = model_call(self.name, exchange, response, ext=ext, rest=rest)
        calls = CallNames()
        context = read_context(request, calls)
        made = value.get("message")
        message = (
            as_object(made) if made is not None else {**value, "content": value.get("response")}
        )
        return replace(
            call,
            context=context,
            output=assistant(_parts(message, calls)),
            tools=read_tools(request.get("tools")),
            sampling={**as_object(request.get("options")), **only(request, _SAMPLING)},
            model_requested=as_text(request.get("model")),
            model_served=as_text(value.get("model")),
            finish_reason=as_text(value.get("done_reason")),
            usage=Usage(
                as_integer(value.get("prompt_eval_count")), as_integer(value.get("eval_count"))
            ),
            mean_logprob=mean_logprob(
                item.get("logprob") for item in objects(value.get("logprobs"))
            ),
        )


def read_context(request: JsonObject, calls: CallNames) -> tuple[Message, ...]:
    """Return the messages of a chat, or system prompt and prompt of a generation."""
    if "messages" in request:
        return tuple(_message(item, calls) for item in objects(request.get("messages")))
    messages: list[Message] = []
    if system := as_text(request.get("system")):
        messages.append(Message("system", (TextPart(system),)))
    asked = {"content": request.get("prompt"), "images": request.get("images")}
    if parts := _parts(asked, calls):
        messages.append(Message("user", tuple(parts)))
    return one_object(messages)


def _message(item: JsonObject, calls: CallNames) -> Message:
    role = as_text(item.get("role")) or "user"
    if role == "tool":
        name = as_text(item.get("tool_name")) or as_text(item.get("name")) or ""
        number = calls.result(name)
        call_id = as_text(item.get("tool_call_id")) or number
        return Message("tool", (ToolResultPart(call_id, item.get("content")),))
    return Message(role, tuple(_parts(item, calls)))


def _parts(item: JsonObject, calls: CallNames) -> list[Part]:
    parts: list[Part] = []
    if thinking := as_text(item.get("thinking")):
        parts.append(ReasoningPart(thinking))
    if text := as_text(item.get("content")):
        parts.append(TextPart(text))
    images = (image for image in as_list(item.get("images")) if isinstance(image, str))
    parts.extend(media_bytes(image, "image/*") for image in images)
    for asked in objects(item.get("tool_calls")):
        function = as_object(asked.get("function"))
        name = as_text(function.get("name")) or ""
        number = calls.call(name)
        arguments = function.get("arguments") or {}
        parts.append(ToolCallPart(as_text(asked.get("id")) or number, name, arguments))
    return parts


def assemble_lines(lines: list[JsonObject]) -> JsonObject | None:
    """Return the response that the lines make; None when there is no line at all."""
    whole: JsonObject = {}
    message: JsonObject = {}
    for line in lines:
        _join(message, as_object(line.get("message")))
        _join(whole, line)
    if not whole:
        return None
    return {**whole, "message": message} if "message" in whole else whole


def _join(whole: JsonObject, piece: JsonObject) -> None:
    for name, value in piece.items():
        before = whole.get(name)
        if name in ("content", "thinking", "response") and isinstance(before, str):
            whole[name] = before + value if isinstance(value, str) else before
        elif name in ("tool_calls", "logprobs") and isinstance(before, list):
            whole[name] = [*before, *as_list(value)]
        elif value is not None:
            whole[name] = value


__all__ = ["Ollama", "assemble_lines"]
