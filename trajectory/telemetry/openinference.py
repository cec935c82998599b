"""OpenInference's semantic conventions (0.1.x), read and written with constants of our own."""

import json
from collections.abc import Iterable

from trajectory.call import Usage
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.openai_chat.read import read_arguments
from trajectory.dialects.wire import as_integer, as_object, as_text, media_part, objects
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

CONVENTION = "openinference"
SPAN_KIND = "openinference.span.kind"
SESSION = "session.id"
AGENT_NAME = "agent.name"
INPUT_MESSAGES = "llm.input_messages."
OUTPUT_MESSAGES = "llm.output_messages."
TOOLS = "llm.tools."
PARAMETERS = "llm.invocation_parameters"
MODEL = "llm.model_name"
REQUEST_MODEL = "llm.request.model_name"
RESPONSE_MODEL = "llm.response.model_name"
FINISH_REASON = "llm.finish_reason"
PROMPT_TOKENS = "llm.token_count.prompt"
COMPLETION_TOKENS = "llm.token_count.completion"
CACHE_READ_TOKENS = "llm.token_count.prompt_details.cache_read"
REASONING_TOKENS = "llm.token_count.completion_details.reasoning"
COST = "llm.cost.total"
_JUDGED = (
    ("evaluations.", "evaluation", False),
    ("annotations.", "annotation", False),
    ("session.evaluations.", "evaluation", True),
    ("session.annotations.", "annotation", True),
    ("trace.evaluations.", "evaluation", True),
    ("trace.annotations.", "annotation", True),
)
_ANNOTATORS = {"HUMAN": "human_explicit", "LLM": "judge", "CODE": "verifier"}
_NOT_SAMPLING = frozenset({"model", "messages", "tools", "stream", "input", "instructions"})


_EVENTS = {
    "RETRIEVER": "retrieval", "RERANKER": "retrieval", "GUARDRAIL": "guardrail",
    "EVALUATOR": "evaluator",
}  # fmt: skip


def read(span: Span) -> SpanFacts | None:
    """Return what a span of this convention says; None when it is of another."""
    attributes = span.attributes
    kind = as_text(attributes.get(SPAN_KIND))
    if kind is None:
        return None
    what: ModelFacts | ToolFacts | None = None
    if kind == "LLM":
        what = _model(attributes)
    elif kind == "TOOL" or kind in _EVENTS:
        what = _tool(attributes, span, _EVENTS.get(kind))
    return SpanFacts(
        convention=CONVENTION,
        what=what,
        judgements=tuple(_judgements(attributes)),
        conversation=text_of(attributes, SESSION),
        conversation_source=SESSION,
        agent_name=text_of(attributes, AGENT_NAME),
    )


def _model(attributes: JsonObject) -> ModelFacts:
    parameters = as_object(structured(attributes.get(PARAMETERS)))
    answers = [_message(item, "assistant") for item in objects(nest(attributes, OUTPUT_MESSAGES))]
    output = answers[0] if answers and answers[0].parts else None
    served = text_of(attributes, RESPONSE_MODEL, MODEL)
    return ModelFacts(
        context=tuple(_message(item, "user") for item in objects(nest(attributes, INPUT_MESSAGES))),
        output=output,
        tools=tuple(_tools(attributes)),
        sampling={
            name: value
            for name, value in parameters.items()
            if name not in _NOT_SAMPLING and value is not None
        },
        model_requested=text_of(attributes, REQUEST_MODEL) or as_text(parameters.get("model")),
        model_served=served,
        response_id=_response_id(attributes),
        finish_reason=text_of(attributes, FINISH_REASON),
        usage=Usage(
            as_integer(attributes.get(PROMPT_TOKENS)),
            as_integer(attributes.get(COMPLETION_TOKENS)),
            as_integer(attributes.get(CACHE_READ_TOKENS)),
            as_integer(attributes.get(REASONING_TOKENS)),
        ),
        cost_usd=number(attributes.get(COST)),
    )


def _response_id(attributes: JsonObject) -> str | None:
    """Return the id in the raw response, which most instrumentations keep as ``output.value``."""
    if attributes.get("output.mime_type") != "application/json":
        return None
    return as_text(as_object(structured(attributes.get("output.value"))).get("id"))


def _message(item: JsonObject, usual: str) -> Message:
    fields = as_object(item.get("message"))
    role = as_text(fields.get("role")) or usual
    role = {"function": "tool", "model": "assistant", "agent": "assistant"}.get(role, role)
    content: list[Part] = [_part(one) for one in objects(fields.get("contents"))]
    if isinstance(fields.get("content"), str) and fields["content"]:
        content.insert(0, TextPart(str(fields["content"])))
    if role == "tool":
        texts = [part.text for part in content if isinstance(part, TextPart)]
        result: JsonValue = texts[0] if texts else ""
        if len(texts) != 1 or len(content) != 1:
            result = fields.get("content", fields.get("contents", ""))
        parsed = ToolResultPart(
            as_text(fields.get("tool_call_id")) or as_text(fields.get("name")) or "", result
        )
        return Message("tool", (parsed,))
    calls = [_tool_call(one) for one in objects(fields.get("tool_calls"))]
    return Message(role, (*content, *calls), as_text(fields.get("name")))


def _part(item: JsonObject) -> Part:
    content = as_object(item.get("message_content"))
    text = content.get("text")
    match content.get("type"):
        case "text" if isinstance(text, str):
            return TextPart(text)
        case "reasoning" if isinstance(text, str):
            return ReasoningPart(text, as_text(content.get("signature")))
        case "image":
            url = as_text(as_object(as_object(content.get("image")).get("image")).get("url"))
            if url is not None:
                return media_part(url, "image/*")
    return OpaquePart(content)


def _tool_call(item: JsonObject) -> ToolCallPart:
    call = as_object(item.get("tool_call"))
    function = as_object(call.get("function"))
    arguments, valid = read_arguments(function.get("arguments"))
    return ToolCallPart(
        as_text(call.get("id")) or "", as_text(function.get("name")) or "", arguments, valid
    )


def _tools(attributes: JsonObject) -> Iterable[JsonObject]:
    for item in objects(nest(attributes, TOOLS)):
        tool = as_object(item.get("tool"))
        schema = structured(tool.get("json_schema"))
        if isinstance(schema, dict):
            yield schema
        elif tool:
            yield tool


def _tool(attributes: JsonObject, span: Span, event: str | None) -> ToolFacts:
    given = attributes.get("tool.parameters", attributes.get("input.value"))
    arguments, _ = read_arguments(given)
    result = attributes.get("output.value")
    documents = nest(attributes, "retrieval.documents.") or nest(
        attributes, "reranker.output_documents."
    )
    parsed = documents if event == "retrieval" and documents else structured(result)
    return ToolFacts(
        name=text_of(attributes, "tool.name") or span.name,
        call_id=text_of(attributes, "tool_call.id", "tool.id") or "",
        arguments=arguments,
        result=result if parsed is None else parsed,
        event=event,
    )


def _judgements(attributes: JsonObject) -> Iterable[Judgement]:
    for prefix, noun, of_session in _JUDGED:
        for item in objects(nest(attributes, prefix)):
            fields = as_object(item.get(noun))
            name = as_text(fields.get("name"))
            if name is None:
                continue
            kind = str(fields.get("annotator_kind"))
            signal = PortableSignal(
                name=name,
                value=number(fields.get("score")),
                label=as_text(fields.get("label")),
                rationale=as_text(fields.get("explanation")),
                source_kind=_ANNOTATORS.get(kind, "judge"),
                source=CONVENTION,
            )
            yield Judgement(signal, _response_id(attributes), of_session)


def write_model(facts: ModelFacts) -> JsonObject:
    """Return the attributes of a model call."""
    parameters = {**facts.sampling, **_named("model", facts.model_requested)}
    out: JsonObject = {SPAN_KIND: "LLM"}
    out |= _named(REQUEST_MODEL, facts.model_requested)
    out |= _named(RESPONSE_MODEL, facts.model_served)
    out |= _named(MODEL, facts.model_served or facts.model_requested)
    out |= _named(FINISH_REASON, facts.finish_reason)
    out |= _named(PROMPT_TOKENS, facts.usage.input_tokens)
    out |= _named(COMPLETION_TOKENS, facts.usage.output_tokens)
    out |= _named(CACHE_READ_TOKENS, facts.usage.cached_input_tokens)
    out |= _named(REASONING_TOKENS, facts.usage.reasoning_tokens)
    out |= _named(COST, facts.cost_usd)
    if parameters:
        out[PARAMETERS] = _dump(parameters)
    for index, message in enumerate(facts.context):
        out |= _write_message(f"{INPUT_MESSAGES}{index}.message.", message)
    if facts.output is not None:
        out |= _write_message(f"{OUTPUT_MESSAGES}0.message.", facts.output)
    for index, tool in enumerate(facts.tools):
        out[f"{TOOLS}{index}.tool.json_schema"] = _dump(tool)
    if facts.response_id:
        out |= {"output.value": _dump({"id": facts.response_id})}
        out["output.mime_type"] = "application/json"
    return out


def _write_message(prefix: str, message: Message) -> JsonObject:
    out: JsonObject = {f"{prefix}role": message.role, **_named(f"{prefix}name", message.name)}
    results = [part for part in message.parts if isinstance(part, ToolResultPart)]
    if results:
        content = results[0].content
        out[f"{prefix}tool_call_id"] = results[0].call_id
        out[f"{prefix}content"] = content if isinstance(content, str) else _dump(content)
        return out
    calls = message.tool_calls()
    others = [part for part in message.parts if not isinstance(part, ToolCallPart)]
    if len(others) == 1 and isinstance(others[0], TextPart):
        out[f"{prefix}content"] = others[0].text
    else:
        for index, part in enumerate(others):
            out |= _write_part(f"{prefix}contents.{index}.message_content.", part)
    for index, call in enumerate(calls):
        at = f"{prefix}tool_calls.{index}.tool_call."
        arguments = call.arguments if not call.arguments_valid else _dump(call.arguments)
        out[f"{at}id"] = call.call_id
        out[f"{at}function.name"] = call.name
        out[f"{at}function.arguments"] = arguments
    return out


def _write_part(prefix: str, part: Part) -> JsonObject:
    if isinstance(part, TextPart):
        return {f"{prefix}type": "text", f"{prefix}text": part.text}
    if isinstance(part, ReasoningPart):
        signed = _named(f"{prefix}signature", part.signature)
        return {f"{prefix}type": "reasoning", f"{prefix}text": part.text, **signed}
    if isinstance(part, MediaPart) and part.url is not None:
        return {f"{prefix}type": "image", f"{prefix}image.image.url": part.url}
    return {f"{prefix}type": part.type}


def write_judgements(prefix: str, signals: Iterable[PortableSignal]) -> JsonObject:
    """Return signals as evaluations below ``prefix`` (``evaluations.``, ``session.evaluations.``)."""
    kinds = {kind: annotator for annotator, kind in _ANNOTATORS.items()}
    out: JsonObject = {}
    for index, signal in enumerate(signals):
        at = f"{prefix}{index}.evaluation."
        out[f"{at}name"] = signal.name
        out |= _named(f"{at}score", signal.value)
        out |= _named(f"{at}label", signal.label)
        out |= _named(f"{at}explanation", signal.rationale)
        out |= _named(f"{at}annotator_kind", kinds.get(signal.source_kind))
    return out


def _named(name: str, value: JsonValue) -> JsonObject:
    return {} if value is None else {name: value}


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
