"""OpenTelemetry's GenAI semantic conventions, read and written with constants of our own.

The names follow the conventions as of 1.41 and their own repository since (``gen_ai.input.messages``
and the rest in message and part form); what instrumentations still send in older forms is read
too: span events per message, and attributes with an index (``gen_ai.prompt.0.content``).
"""

import json
from collections.abc import Iterable

from trajectory.call import Usage
from trajectory.canonical import JsonObject
from trajectory.dialects.openai_chat.read import read_arguments
from trajectory.dialects.wire import as_integer, as_list, as_object, as_text, objects
from trajectory.message import Message
from trajectory.portable import PortableSignal
from trajectory.telemetry.facts import (
    Judgement,
    ModelFacts,
    SpanFacts,
    ToolFacts,
    nest,
    number,
    structured,
    text_of,
)
from trajectory.telemetry.genai_messages import read_messages, read_part, write_message
from trajectory.telemetry.genai_older import older_messages
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
    if operation == "execute_tool":
        what = _tool(attributes)
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
        end_user=text_of(attributes, "user.id", "enduser.id"),
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


def _tool(attributes: JsonObject) -> ToolFacts:
    arguments, _ = read_arguments(attributes.get("gen_ai.tool.call.arguments"))
    result = attributes.get("gen_ai.tool.call.result")
    parsed = structured(result)
    return ToolFacts(
        name=text_of(attributes, "gen_ai.tool.name") or "",
        call_id=text_of(attributes, "gen_ai.tool.call.id") or "",
        arguments=arguments,
        result=result if parsed is None else parsed,
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
