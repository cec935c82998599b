"""ATIF v1.8, the Agent Trajectory Interchange Format of Harbor: one JSON document a trajectory."""

from trajectory.call import TokenCapture, Usage
from trajectory.canonical import JsonObject, JsonValue, canonical_json
from trajectory.dialects.wire import as_integer, as_object, as_text, objects
from trajectory.formats.document import DocumentFormat, at_path, need_list
from trajectory.json_form import FormError
from trajectory.message import (
    MediaPart,
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    is_note,
)
from trajectory.portable import PortableStep, Trajectory, signals_of

SCHEMA_VERSION = "ATIF-v1.8"
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


def _read(document: JsonObject, where: str) -> Trajectory:
    version = as_text(document.get("schema_version")) or ""
    if not version.startswith("ATIF-v1."):
        raise FormError(
            f"{where}: schema_version: not an ATIF document; expected ATIF-v1.0 to {SCHEMA_VERSION}"
        )
    steps = need_list(document, "steps", where)
    if not steps:
        raise FormError(f"{where}: steps: an ATIF document has at least one")
    agent = as_object(document.get("agent"))
    made, trailing = _import_steps(steps)
    return Trajectory(
        steps=made,
        trailing=trailing,
        trajectory_id=as_text(document.get("trajectory_id")),
        session_id=as_text(document.get("session_id")),
        agent_name=as_text(agent.get("name")),
        agent_version=as_text(agent.get("version")),
        model=as_text(agent.get("model_name")),
        tools=tuple(objects(agent.get("tool_definitions"))),
        signals=signals_of(as_object(document.get("extra")).get("signals")),
    )


def _import_steps(
    steps: list[JsonObject],
) -> tuple[tuple[PortableStep, ...], tuple[Message, ...]]:
    made: list[PortableStep] = []
    observed: list[Message] = []
    for step in steps:
        source = as_text(step.get("source"))
        if source != "agent":
            observed.append(Message(source or "user", _import_content(step.get("message"))))
        else:
            made.append(_import_answer(step, tuple(observed)))
            observed = []
        observed.extend(
            Message(
                "tool",
                (ToolResultPart(as_text(item.get("source_call_id")) or "", item.get("content")),),
            )
            for item in objects(as_object(step.get("observation")).get("results"))
        )
    return tuple(made), tuple(observed)


def _import_answer(step: JsonObject, observed: tuple[Message, ...]) -> PortableStep:
    parts: list[Part] = []
    if reasoning := as_text(step.get("reasoning_content")):
        parts.append(ReasoningPart(reasoning))
    parts.extend(_import_content(step.get("message")))
    parts.extend(
        ToolCallPart(
            as_text(call.get("tool_call_id")) or "",
            as_text(call.get("function_name")) or "",
            call.get("arguments", {}),
        )
        for call in objects(step.get("tool_calls"))
    )
    metrics = as_object(step.get("metrics"))
    cost = metrics.get("cost_usd")
    completion = integers(metrics.get("completion_token_ids"))
    tokens = None
    if completion:
        prompt = integers(metrics.get("prompt_token_ids"))
        tokens = TokenCapture(prompt, completion, numbers(metrics.get("logprobs")))
    return PortableStep(
        observed=observed,
        output=Message("assistant", tuple(parts)),
        step_id=as_text(as_object(step.get("extra")).get("step_id")),
        timestamp=as_text(step.get("timestamp")),
        model=as_text(step.get("model_name")),
        usage=Usage(
            as_integer(metrics.get("prompt_tokens")),
            as_integer(metrics.get("completion_tokens")),
            as_integer(metrics.get("cached_tokens")),
        ),
        cost_usd=float(cost) if isinstance(cost, int | float) else None,
        tokens=tokens,
        signals=signals_of(as_object(step.get("extra")).get("signals")),
    )


def integers(value: JsonValue | None) -> tuple[int, ...] | None:
    """Return a list of integers as a tuple; None when it is anything else."""
    if not isinstance(value, list):
        return None
    found = tuple(item for item in value if isinstance(item, int) and not isinstance(item, bool))
    return found if len(found) == len(value) else None


def numbers(value: JsonValue | None) -> tuple[float, ...] | None:
    """Return a list of numbers as a tuple of floats; None when it is anything else."""
    if not isinstance(value, list):
        return None
    found = tuple(
        float(item)
        for item in value
        if isinstance(item, int | float) and not isinstance(item, bool)
    )
    return found if len(found) == len(value) else None


def _import_content(content: JsonValue | None) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    return tuple(_import_part(item) for item in objects(content))


def _import_part(item: JsonObject) -> Part:
    if isinstance(item.get("text"), str):
        return TextPart(str(item["text"]))
    source = as_object(item.get("source"))
    if isinstance(source.get("path"), str):
        kind = as_text(source.get("media_type")) or "application/octet-stream"
        return MediaPart(kind, None, None, url=str(source["path"]))
    return OpaquePart(item)


def _write(trajectory: Trajectory) -> JsonObject:
    agent: JsonObject = {
        "name": trajectory.agent_name or "unknown",
        "version": trajectory.agent_version or "unknown",
    }
    if trajectory.model:
        agent["model_name"] = trajectory.model
    if trajectory.tools:
        agent["tool_definitions"] = list(trajectory.tools)
    document: JsonObject = {"schema_version": SCHEMA_VERSION}
    if trajectory.session_id:
        document["session_id"] = trajectory.session_id
    if trajectory.trajectory_id:
        document["trajectory_id"] = trajectory.trajectory_id
    document |= {"agent": agent, "steps": list[JsonValue](_export_steps(trajectory))}
    if trajectory.signals:
        document["extra"] = {"signals": [signal.to_json() for signal in trajectory.signals]}
    return document


def _export_steps(trajectory: Trajectory) -> list[JsonObject]:
    out: list[JsonObject] = []
    for step in trajectory.steps:
        for message in step.observed:
            _export_observed(out, message)
        out.append(_export_answer(step, len(out) + 1))
    for message in trajectory.trailing:
        _export_observed(out, message)
    return out


def _export_observed(out: list[JsonObject], message: Message) -> None:
    results = [part for part in message.parts if isinstance(part, ToolResultPart)]
    if results and out:
        for part in results:
            _attach_result(out[-1], part)
        return
    source = "system" if message.role in ("system", "developer") else "user"
    out.append(
        {"step_id": len(out) + 1, "source": source, "message": _export_content(message.parts)}
    )


def _attach_result(step: JsonObject, part: ToolResultPart) -> None:
    """Put a result under the step before it; ATIF lets a step name only its own calls."""
    own = {as_text(call.get("tool_call_id")) for call in objects(step.get("tool_calls"))}
    result: JsonObject = {"content": _result_content(part.content)}
    if part.call_id in own:
        result = {"source_call_id": part.call_id, **result}
    if part.is_error:
        result["extra"] = {"is_error": True}
    observation = as_object(step.setdefault("observation", {"results": []}))
    results = observation["results"]
    if isinstance(results, list):
        results.append(result)


def _result_content(content: JsonValue) -> JsonValue:
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        as_object(item).get("type") == "text" or "source" in as_object(item) for item in content
    ):
        return content
    return canonical_json(content).decode("utf-8", "replace")


def _export_answer(step: PortableStep, number: int) -> JsonObject:
    parts = step.output.parts
    out: JsonObject = {"step_id": number}
    if step.timestamp:
        out["timestamp"] = step.timestamp
    out["source"] = "agent"
    if step.model:
        out["model_name"] = step.model
    content = [
        part
        for part in parts
        if isinstance(part, TextPart | MediaPart | OpaquePart) and not is_note(part)
    ]
    out["message"] = _export_content(tuple(content))
    if reasoning := [part.text for part in parts if isinstance(part, ReasoningPart)]:
        out["reasoning_content"] = "\n".join(reasoning)
    if calls := step.output.tool_calls():
        out["tool_calls"] = [_export_call(call) for call in calls]
    if metrics := _export_metrics(step):
        out["metrics"] = metrics
    extra: JsonObject = {}
    if step.step_id:
        extra["step_id"] = step.step_id
    if step.signals:
        extra["signals"] = [signal.to_json() for signal in step.signals]
    if extra:
        out["extra"] = extra
    return out


def _export_call(call: ToolCallPart) -> JsonObject:
    out: JsonObject = {"tool_call_id": call.call_id, "function_name": call.name}
    if isinstance(call.arguments, dict):
        return {**out, "arguments": call.arguments}
    return {**out, "arguments": {"raw": call.arguments}, "extra": {"arguments_valid": False}}


def _export_metrics(step: PortableStep) -> JsonObject:
    tokens = step.tokens
    values: dict[str, JsonValue] = {
        "prompt_tokens": step.usage.input_tokens,
        "completion_tokens": step.usage.output_tokens,
        "cached_tokens": step.usage.cached_input_tokens,
        "cost_usd": step.cost_usd,
    }
    if tokens is not None:
        prompt, logprobs = tokens.prompt_token_ids, tokens.logprobs
        values["prompt_token_ids"] = None if prompt is None else list[JsonValue](prompt)
        values["completion_token_ids"] = list[JsonValue](tokens.completion_token_ids)
        values["logprobs"] = None if logprobs is None else list[JsonValue](logprobs)
    return {name: value for name, value in values.items() if value is not None}


def _export_content(parts: tuple[Part, ...]) -> JsonValue:
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if len(texts) == len(parts) and len(parts) <= 1:
        return texts[0] if texts else ""
    return [_export_part(part) for part in parts]


def _export_part(part: Part) -> JsonValue:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, MediaPart):
        if part.url is not None and part.media_type in _IMAGES:
            return {"type": "image", "source": {"media_type": part.media_type, "path": part.url}}
        name = f"[{part.media_type} sha256:{part.sha256} {part.size_bytes} bytes]"
        return {"type": "text", "text": name}
    value = part.value if isinstance(part, OpaquePart) else None
    return {"type": "text", "text": canonical_json(value).decode("utf-8", "replace")}


FORMAT = DocumentFormat("atif", "1.8 (1.0 to 1.8 are read)", _read, _write, at_path("extra"))
import_document = FORMAT.import_document
export_document = FORMAT.export_document

__all__ = ["FORMAT", "export_document", "import_document"]
