"""OpenTelemetry's GenAI semantic conventions, read and written with constants of our own.

The names follow the conventions as of 1.41 and their own repository since (``gen_ai.input.messages``
and the rest in message and part form); what instrumentations still send in older forms is read
too: span events per message, and attributes with an index (``gen_ai.prompt.0.content``).
"""

import json
from collections.abc import Iterable

from trajectory.call import Usage
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.openai_chat.read import read_arguments, read_message
from trajectory.dialects.wire import as_integer, as_list, as_object, as_text, media_bytes, objects
from trajectory.message import (
    MediaPart,
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from trajectory.portable import PortableSignal
from trajectory.telemetry.span_content import (
    Judgement,
    ModelFacts,
    SpanFacts,
    ToolFacts,
    nest,
    number,
    structured,
    text_of,
)
from trajectory.telemetry.spans import Span

CONVENTION = "otel.genai"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"
OPERATION = "gen_ai.operation.name"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
CONVERSATION = "gen_ai.conversation.id"
AGENT_NAME = "gen_ai.agent.name"
AGENT_VERSION = "gen_ai.agent.version"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
EVALUATION = "gen_ai.evaluation.result"
EVALUATION_NAME = "gen_ai.evaluation.name"
EVALUATION_VALUE = "gen_ai.evaluation.score.value"
EVALUATION_LABEL = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION = "gen_ai.evaluation.explanation"
SAMPLING = {
    "gen_ai.request.temperature": "temperature",
    "gen_ai.request.top_p": "top_p",
    "gen_ai.request.top_k": "top_k",
    "gen_ai.request.max_tokens": "max_tokens",
    "gen_ai.request.frequency_penalty": "frequency_penalty",
    "gen_ai.request.presence_penalty": "presence_penalty",
    "gen_ai.request.seed": "seed",
    "gen_ai.request.stop_sequences": "stop",
    "gen_ai.request.choice.count": "n",
}
"""Attribute → name of the sampling parameter."""

_EVENTS = {
    "retrieval": "retrieval", "search_memory": "memory", "create_memory": "memory",
    "update_memory": "memory", "upsert_memory": "memory", "delete_memory": "memory",
    "apply_guardrail": "guardrail",
}  # fmt: skip
"""Operations of what an agent's program does beside its tools, and the event that each is."""
_DETAILS = ("gen_ai.client.inference.operation.details",)
_MODEL_OPERATIONS = frozenset({"chat", "generate_content", "text_completion"})


def read(span: Span) -> SpanFacts | None:
    """Return what a span of this convention says; None when it is of another."""
    attributes = span.attributes
    if not any(name.startswith("gen_ai.") for name in attributes):
        return None
    for event in span.events:
        if event.name in _DETAILS:
            attributes = {**attributes, **event.attributes}
    operation = as_text(attributes.get(OPERATION))
    what: ModelFacts | ToolFacts | None = None
    if operation == "execute_tool" or operation in _EVENTS:
        what = _tool(attributes, span, _EVENTS.get(operation))
    elif operation in _MODEL_OPERATIONS or (operation is None and REQUEST_MODEL in attributes):
        what = _model(attributes, span)
    conversation = text_of(attributes, CONVERSATION)
    return SpanFacts(
        convention=CONVENTION,
        what=what,
        judgements=tuple(_judgements(span)),
        conversation=conversation or text_of(attributes, "session.id"),
        conversation_source=CONVERSATION if conversation else "session.id",
        agent_name=text_of(attributes, AGENT_NAME),
        agent_version=text_of(attributes, AGENT_VERSION),
    )


def _model(attributes: JsonObject, span: Span) -> ModelFacts:
    context, output, finish = _messages(attributes, span)
    reasons = as_list(attributes.get(FINISH_REASONS))
    output_tokens = attributes.get(OUTPUT_TOKENS, attributes.get("gen_ai.usage.completion_tokens"))
    return ModelFacts(
        context=context,
        output=output,
        tools=tuple(_tools(attributes)),
        sampling={
            name: attributes[key]
            for key, name in SAMPLING.items()
            if attributes.get(key) is not None
        },
        model_requested=text_of(attributes, REQUEST_MODEL),
        model_served=text_of(attributes, RESPONSE_MODEL),
        response_id=text_of(attributes, RESPONSE_ID),
        finish_reason=(as_text(reasons[0]) if reasons else None) or finish,
        usage=Usage(
            as_integer(attributes.get(INPUT_TOKENS, attributes.get("gen_ai.usage.prompt_tokens"))),
            as_integer(output_tokens),
            as_integer(attributes.get(CACHE_READ_TOKENS)),
            as_integer(attributes.get(REASONING_TOKENS)),
        ),
        streamed=attributes.get("gen_ai.request.stream") is True,
        first_chunk_seconds=number(attributes.get("gen_ai.response.time_to_first_chunk")),
    )


def _messages(
    attributes: JsonObject, span: Span
) -> tuple[tuple[Message, ...], Message | None, str | None]:
    """Return context, answer and finish reason, from the newest form that is there."""
    given = objects(structured(attributes.get(INPUT_MESSAGES)))
    answers = objects(structured(attributes.get(OUTPUT_MESSAGES)))
    if not given and not answers:
        return older_messages(attributes, span)
    context = [message for item in given for message in read_messages(item)]
    system = attributes.get(SYSTEM_INSTRUCTIONS)
    instructions = structured(system) or ([system] if isinstance(system, str) else None)
    parts = tuple(read_part(item) for item in as_list(instructions))
    if parts and Message("system", parts) not in context[:1]:
        context.insert(0, Message("system", parts))
    answer = answers[0] if answers else {}
    output = next(iter(read_messages({**answer, "role": "assistant"})), None) if answer else None
    if output is not None and not output.parts:
        output = None
    return tuple(context), output, as_text(answer.get("finish_reason"))


def _tools(attributes: JsonObject) -> Iterable[JsonObject]:
    for item in objects(structured(attributes.get(TOOL_DEFINITIONS))):
        if item.get("type") == "function" and "function" not in item:
            yield {
                "type": "function",
                "function": {name: item[name] for name in item if name != "type"},
            }
        else:
            yield item
    for item in objects(nest(attributes, "llm.request.functions.")):
        parameters = structured(item.get("parameters"))
        yield {"type": "function", "function": {**item, "parameters": parameters}}


def _tool(attributes: JsonObject, span: Span, event: str | None) -> ToolFacts:
    asked, told = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
    if event == "retrieval":
        asked, told = "gen_ai.retrieval.query.text", "gen_ai.retrieval.documents"
    elif event is not None:
        asked, told = INPUT_MESSAGES, OUTPUT_MESSAGES
    arguments, _ = read_arguments(attributes.get(asked))
    result = attributes.get(told)
    parsed = structured(result)
    return ToolFacts(
        name=text_of(attributes, "gen_ai.tool.name") or (span.name if event else ""),
        call_id=text_of(attributes, "gen_ai.tool.call.id") or "",
        arguments=arguments,
        result=result if parsed is None else parsed,
        event=event,
    )


def _judgements(span: Span) -> Iterable[Judgement]:
    for event in span.events:
        name = text_of(event.attributes, EVALUATION_NAME)
        if event.name != EVALUATION or name is None:
            continue
        signal = PortableSignal(
            name=name,
            value=number(event.attributes.get(EVALUATION_VALUE)),
            label=text_of(event.attributes, EVALUATION_LABEL),
            rationale=text_of(event.attributes, EVALUATION_EXPLANATION),
            source_kind="judge",
            source=CONVENTION,
        )
        response = text_of(event.attributes, RESPONSE_ID) or text_of(span.attributes, RESPONSE_ID)
        yield Judgement(signal, response)


def write_model(facts: ModelFacts) -> JsonObject:
    """Return the attributes of a model call."""
    answer = [write_message(facts.output)] if facts.output is not None else []
    if answer and facts.finish_reason:
        answer[0]["finish_reason"] = facts.finish_reason
    values: JsonObject = {
        OPERATION: "chat",
        "gen_ai.provider.name": "unknown",
        REQUEST_MODEL: facts.model_requested,
        RESPONSE_MODEL: facts.model_served,
        RESPONSE_ID: facts.response_id,
        FINISH_REASONS: [facts.finish_reason] if facts.finish_reason else None,
        INPUT_TOKENS: facts.usage.input_tokens,
        OUTPUT_TOKENS: facts.usage.output_tokens,
        CACHE_READ_TOKENS: facts.usage.cached_input_tokens,
        REASONING_TOKENS: facts.usage.reasoning_tokens,
        INPUT_MESSAGES: _dump([write_message(message) for message in facts.context]),
        OUTPUT_MESSAGES: _dump(answer),
        TOOL_DEFINITIONS: _dump([_flat_tool(tool) for tool in facts.tools]),
    }
    names = {name: key for key, name in SAMPLING.items()}
    values |= {names[name]: item for name, item in facts.sampling.items() if name in names}
    return {name: value for name, value in values.items() if value is not None}


def _flat_tool(tool: JsonObject) -> JsonObject:
    if tool.get("type") == "function" and set(tool) == {"type", "function"}:
        return {"type": "function", **as_object(tool["function"])}
    return tool


def write_judgement(signal: PortableSignal) -> JsonObject:
    """Return the attributes of an evaluation event."""
    values: JsonObject = {
        EVALUATION_NAME: signal.name,
        EVALUATION_VALUE: None if signal.value is None else float(signal.value),
        EVALUATION_LABEL: signal.label,
        EVALUATION_EXPLANATION: signal.rationale,
    }
    return {name: value for name, value in values.items() if value is not None}


def _dump(value: object) -> str | None:
    return json.dumps(value, ensure_ascii=False) if value else None


def read_messages(item: JsonObject) -> list[Message]:
    """Return the messages in one of the convention: results of tools are messages of their own."""
    role = as_text(item.get("role")) or "user"
    name = as_text(item.get("name"))
    parts = [read_part(part) for part in as_list(item.get("parts", item.get("content")))]
    if isinstance(item.get("content"), str) and "parts" not in item:
        parts = [TextPart(str(item["content"]))]
    results = [part for part in parts if isinstance(part, ToolResultPart)]
    others = tuple(part for part in parts if not isinstance(part, ToolResultPart))
    messages = [Message("tool", (part,)) for part in results]
    if others or not results:
        messages.append(Message(role, others, name))
    return messages


def read_part(value: JsonValue) -> Part:
    if isinstance(value, str):
        return TextPart(value)
    item = as_object(value)
    content = item.get("content")
    match item.get("type"):
        case "text" if isinstance(content, str):
            return TextPart(content)
        case "reasoning" | "thinking" if isinstance(content, str):
            return ReasoningPart(content, as_text(item.get("signature")))
        case "tool_call":
            return _tool_call(item)
        case "tool_call_response":
            response = item.get("response", item.get("result"))
            is_error = item.get("is_error") is True
            return ToolResultPart(as_text(item.get("id")) or "", response, is_error)
        case "uri" if isinstance(item.get("uri"), str):
            kind = as_text(item.get("mime_type")) or f"{item.get('modality') or 'application'}/*"
            return MediaPart(kind, None, None, url=str(item["uri"]))
        case "blob" if isinstance(content, str):
            kind = as_text(item.get("mime_type")) or f"{item.get('modality') or 'application'}/*"
            return media_bytes(content, kind)
        case _:
            return OpaquePart(value)


def _tool_call(item: JsonObject) -> ToolCallPart:
    arguments, valid = read_arguments(item.get("arguments"))
    return ToolCallPart(
        as_text(item.get("id")) or "", as_text(item.get("name")) or "", arguments, valid
    )


def write_message(message: Message) -> JsonObject:
    """Return a message in the convention's form."""
    out: JsonObject = {"role": message.role, "parts": [_write_part(part) for part in message.parts]}
    return {**out, "name": message.name} if message.name is not None else out


def _write_part(part: Part) -> JsonObject:
    match part:
        case TextPart():
            return {"type": "text", "content": part.text}
        case ReasoningPart():
            signed = {"signature": part.signature} if part.signature else {}
            return {"type": "reasoning", "content": part.text, **signed}
        case ToolCallPart():
            arguments = part.arguments
            if part.arguments_valid and isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False)
            call: JsonObject = {"type": "tool_call", "id": part.call_id, "name": part.name}
            return {**call, "arguments": arguments}
        case ToolResultPart():
            failed: JsonObject = {"is_error": True} if part.is_error else {}
            result: JsonObject = {"type": "tool_call_response", "id": part.call_id}
            return {**result, "response": part.content, **failed}
        case MediaPart() if part.url is not None:
            modality = part.media_type.partition("/")[0]
            kind: JsonObject = {"type": "uri", "mime_type": part.media_type, "modality": modality}
            return {**kind, "uri": part.url}
        case MediaPart():
            named: JsonObject = {"type": "media", "media_type": part.media_type}
            return {**named, "sha256": part.sha256, "size_bytes": part.size_bytes}
        case OpaquePart():
            return part.value if isinstance(part.value, dict) else {"type": "opaque"}


_OLD_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}


def older_messages(
    attributes: JsonObject, span: Span
) -> tuple[tuple[Message, ...], Message | None, str | None]:
    """Return context, answer and finish reason."""
    context: list[Message] = []
    output, finish = None, None
    for event in span.events:
        fields = {name: structured(value) or value for name, value in event.attributes.items()}
        if event.name in _OLD_ROLES:
            item = {**fields, "tool_call_id": fields.get("id")}
            context.append(read_message({"role": _OLD_ROLES[event.name], **_known(item)}))
        elif event.name == "gen_ai.choice" and output is None:
            answer = as_object(fields.get("message")) or fields
            output = read_message({**_known(answer), "role": "assistant"})
            finish = as_text(fields.get("finish_reason"))
    if not context and output is None:
        given = objects(nest(attributes, "gen_ai.prompt."))
        context = [read_message(_known(item)) for item in given]
        for item in objects(nest(attributes, "gen_ai.completion."))[:1]:
            output = read_message({**_known(item), "role": "assistant"})
            finish = as_text(item.get("finish_reason"))
    return tuple(context), output if output and output.parts else None, finish


def _known(item: JsonObject) -> JsonObject:
    """Return the fields of a message that chat completions know, calls in their shape."""
    out: JsonObject = {
        name: item[name] for name in ("role", "content", "tool_call_id", "name") if item.get(name)
    }
    calls: list[JsonValue] = [
        call
        if "function" in call
        else {
            "id": call.get("id"),
            "function": {"name": call.get("name"), "arguments": call.get("arguments")},
        }
        for call in objects(item.get("tool_calls"))
    ]
    return {**out, "tool_calls": calls} if calls else out
