"""Mistral's conversations: entries instead of messages; the provider keeps what came before."""

import re
from dataclasses import replace
from itertools import groupby

from trajectory.call import Call, CallKind, SessionHint
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.openai_chat.read import read_message, read_usage
from trajectory.dialects.openai_chat.stream import join_content
from trajectory.dialects.reader import DialectOutput, assistant, call_fields, model_call
from trajectory.dialects.resends import one_object, read_tools
from trajectory.dialects.response import read_response
from trajectory.dialects.wire import (
    as_integer,
    as_object,
    as_text,
    name_media,
    names,
    objects,
    only,
    request_json,
    without,
)
from trajectory.exchange import Exchange
from trajectory.message import (
    Message,
    OpaquePart,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

_PATH = re.compile(r"/conversations(?:/([^/]+)(?:/restart)?)?/?$")
_ASKS = (b'"inputs"', b'"from_entry_id"', b'"tool_confirmations"')
"""Fields that only Mistral's requests have; OpenAI's make and change a list of items."""
_SAMPLING = names("guardrails handoff_execution")
_REQUEST_READ = _SAMPLING | names(
    "inputs instructions tools completion_args model agent_id stream store"
)
_RESPONSE_READ = names("object conversation_id outputs usage error")
_ENTRY_READ = names("object type created_at completed_at id agent_id model role content")
_CALL_READ = _ENTRY_READ | names("tool_call_id name arguments")
_RESULT_READ = _ENTRY_READ | names("tool_call_id result")


class MistralConversations:
    """``POST …/conversations``, what is appended to one, and one that begins anew at an entry."""

    name = "mistral.conversations"
    yields = DialectOutput(
        "`POST …/conversations`, `…/conversations/<id>`, `…/restart` (Mistral); a later request"
        " holds only what is new",
        CallKind.MODEL,
        streams="SSE",
        text=True,
        reasoning=True,
        tool_calls=True,
        usage=True,
        errors="status and body, `conversation.response.error` event",
        identity="`conversation_id`",
    )

    def matches(self, exchange: Exchange) -> bool:
        """Tell by method, path and the fields of the body."""
        request = exchange.request
        return (
            request.method == "POST"
            and _PATH.search(request.path) is not None
            and any(field in request.body for field in _ASKS)
        )

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; see :func:`trajectory.dialects.registry.read_exchange`."""
        request = request_json(exchange)
        response = read_response(exchange, assemble_events)
        value = response.value or {}
        outputs = objects(value.get("outputs"))
        found = _PATH.search(exchange.request.path)
        conversation = as_text(value.get("conversation_id")) or (found[1] if found else None)
        hints = (SessionHint("client:conversation", conversation),) if conversation else ()
        call = model_call(
            self.name,
            exchange,
            response,
            ext=without(request, _REQUEST_READ),
            rest=without(value, _RESPONSE_READ),
            hints=hints,
        )
        last = outputs[-1] if outputs else {}
        made: list[Part] = [part for entry in outputs for part in _made(entry)]
        asks = any(isinstance(part, ToolCallPart) for part in made)
        return replace(
            call,
            context=read_context(request),
            output=assistant(made),
            tools=read_tools(request.get("tools")),
            sampling={**as_object(request.get("completion_args")), **only(request, _SAMPLING)},
            model_requested=as_text(request.get("model")) or as_text(request.get("agent_id")),
            model_served=as_text(last.get("model")),
            response_id=as_text(last.get("id")),
            finish_reason=None if "usage" not in value else "tool_calls" if asks else "stop",
            usage=read_usage(value.get("usage")),
        )


def read_context(request: JsonObject) -> tuple[Message, ...]:
    """Return instructions and inputs; what the model made in one turn is one message."""
    messages: list[Message] = []
    if instructions := as_text(request.get("instructions")):
        messages.append(Message("system", (TextPart(instructions),)))
    given = request.get("inputs")
    if isinstance(given, str):
        return one_object([*messages, Message("user", (TextPart(given),))])
    for of_model, entries in groupby(objects(given), _is_of_model):
        if of_model:
            parts = [part for entry in entries for part in _made(entry)]
            messages.append(Message("assistant", tuple(parts)))
        else:
            messages += map(_asked, entries)
    return one_object(messages)


def _is_of_model(entry: JsonObject) -> bool:
    kind = as_text(entry.get("type")) or "message.input"
    return kind != "function.result" and (
        kind != "message.input" or entry.get("role") == "assistant"
    )


def _asked(entry: JsonObject) -> Message:
    if entry.get("type") == "function.result":
        call_id = as_text(entry.get("tool_call_id")) or ""
        result = ToolResultPart(call_id, name_media(entry.get("result")))
        return Message("tool", (result, *call_fields(call_id, without(entry, _RESULT_READ))))
    return Message(as_text(entry.get("role")) or "user", tuple(_content(entry.get("content"))))


def _made(entry: JsonObject) -> list[Part]:
    """Return the parts of an entry of the model's turn."""
    kind = as_text(entry.get("type")) or "message.input"
    if kind in ("message.output", "message.input"):
        return _content(entry.get("content"))
    if kind == "function.call":
        call_id, name = as_text(entry.get("tool_call_id")) or "", as_text(entry.get("name")) or ""
        function: JsonObject = {"name": name, "arguments": entry.get("arguments")}
        asked = read_message({"tool_calls": [{"id": call_id, "function": function}]})
        return [*asked.parts, *call_fields(call_id, without(entry, _CALL_READ))]
    return [OpaquePart(name_media(entry))]


def _content(content: JsonValue | None) -> list[Part]:
    return list(read_message({"content": content}).parts)


def assemble_events(events: list[JsonObject]) -> JsonObject | None:
    """Return the response that ``events`` make; None when it never began."""
    whole: JsonObject = {}
    outputs: dict[int, JsonObject] = {}
    for event in events:
        kind = as_text(event.get("type")) or ""
        if kind.startswith("conversation.response."):
            _join_response(whole, kind.rpartition(".")[2], event)
            continue
        entry, _, step = kind.rpartition(".")
        index = as_integer(event.get("output_index")) or 0
        if entry and step in ("started", "delta", "done"):
            _join_entry(outputs.setdefault(index, {"type": entry}), event)
    if not whole and not outputs:
        return None
    return {**whole, "outputs": [outputs[index] for index in sorted(outputs)]}


def _join_response(whole: JsonObject, step: str, event: JsonObject) -> None:
    if step == "started":
        whole["conversation_id"] = event.get("conversation_id")
    elif step == "done":
        whole["usage"] = event.get("usage")
    elif step == "error":
        whole["error"] = {"message": event.get("message"), "code": event.get("code")}


def _join_entry(entry: JsonObject, event: JsonObject) -> None:
    for name, value in event.items():
        if name == "content":
            piece: JsonValue = [value] if isinstance(value, dict) else value
            entry["content"] = join_content(entry.get("content"), piece)
        elif name == "arguments" and isinstance(value, str):
            entry[name] = (as_text(entry.get(name)) or "") + value
        elif name not in ("type", "output_index", "content_index") and value is not None:
            entry[name] = value
