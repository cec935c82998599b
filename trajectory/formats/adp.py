"""ADP 1.2, the Agent Data Protocol (arXiv 2510.24702): actions and observations, one document a trajectory."""

import json
from dataclasses import replace

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import as_object, as_text
from trajectory.formats.document import DocumentFormat, at_path, need_list, need_text
from trajectory.json_form import FormError
from trajectory.message import (
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from trajectory.portable import PortableSignal, PortableStep, Trajectory

SCHEMA_VERSION = "1.2.0"
_REWARD = "reward"
_SOURCE = "adp"
_OBSERVATIONS = frozenset({"text_observation", "image_observation", "web_observation"})


def _read(document: JsonObject, where: str) -> Trajectory:
    version = document.get("schema_version", SCHEMA_VERSION)
    if not isinstance(version, str) or not version.startswith("1."):
        raise FormError(f"{where}: schema_version: expected 1.0.0 to {SCHEMA_VERSION}")
    name = need_text(document, "id", where)
    steps: list[PortableStep] = []
    observed: list[Message] = []
    acting = False
    for index, item in enumerate(need_list(document, "content", where)):
        place = f"{where}: content[{index}]"
        kind = as_text(item.get("class_"))
        if kind in _OBSERVATIONS:
            observed.append(_observation(item, place, steps))
            acting = False
            continue
        parts = _action(item, kind, place)
        signals = _reward(item)
        # Actions that follow each other without an observation are one answer of the model.
        if acting and steps:
            before = steps[-1]
            output = replace(before.output, parts=(*before.output.parts, *parts))
            steps[-1] = replace(before, output=output, signals=(*before.signals, *signals))
        else:
            output = Message("assistant", parts)
            steps.append(PortableStep(tuple(observed), output, signals=signals))
            observed = []
        acting = True
    return Trajectory(tuple(steps), tuple(observed), trajectory_id=name)


def _observation(item: JsonObject, where: str, steps: list[PortableStep]) -> Message:
    if item.get("class_") != "text_observation":
        return Message("user", (OpaquePart(item),))
    content, source = need_text(item, "content", where), need_text(item, "source", where)
    name = as_text(item.get("name"))
    if source == "environment":
        call_id = as_text(item.get("tool_call_id")) or _open_call(steps)
        if call_id is not None:
            return Message("tool", (ToolResultPart(call_id, content),), name)
    role = {"agent": "assistant", "environment": "user"}.get(source, source)
    return Message(role, (TextPart(content),), name)


def _open_call(steps: list[PortableStep]) -> str | None:
    """Return the call that an observation answers when the document does not say: the last one's."""
    calls = steps[-1].output.tool_calls() if steps else ()
    return calls[-1].call_id if len(calls) == 1 else None


def _action(item: JsonObject, kind: str | None, where: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    if reasoning := as_text(item.get("reasoning_content")):
        parts.append(ReasoningPart(reasoning))
    if said := as_text(item.get("description")):
        parts.append(TextPart(said))
    call_id = as_text(item.get("tool_call_id")) or ""
    match kind:
        case "message_action":
            parts.append(TextPart(need_text(item, "content", where)))
        case "api_action":
            name = need_text(item, "function", where)
            parts.append(ToolCallPart(call_id, name, as_object(item.get("kwargs"))))
        case "code_action":
            code: JsonObject = {"code": need_text(item, "content", where)}
            parts.append(ToolCallPart(call_id, need_text(item, "language", where), code))
        case _:
            raise FormError(f"{where}: class_: expected an action or an observation of ADP 1")
    return tuple(parts)


def _reward(item: JsonObject) -> tuple[PortableSignal, ...]:
    value = item.get(_REWARD)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ()
    return (PortableSignal(_REWARD, float(value), source_kind="env", source=_SOURCE),)


def _write(trajectory: Trajectory) -> JsonObject:
    content: list[JsonValue] = []
    for step in trajectory.steps:
        content += [_write_observation(message) for message in step.observed]
        actions = _write_answer(step.output)
        reward = next((one.value for one in step.signals if one.value is not None), None)
        if actions and reward is not None:
            actions[-1][_REWARD] = reward
        content += actions
    content += [_write_observation(message) for message in trajectory.trailing]
    return {
        "schema_version": SCHEMA_VERSION,
        "id": trajectory.trajectory_id or "trajectory",
        "content": content,
    }


def _write_observation(message: Message) -> JsonObject:
    opaque = [part.value for part in message.parts if isinstance(part, OpaquePart)]
    if len(opaque) == len(message.parts) == 1 and as_object(opaque[0]).get("class_"):
        return as_object(opaque[0])
    results = [part.content for part in message.parts if isinstance(part, ToolResultPart)]
    source = {"tool": "environment", "assistant": "agent"}.get(message.role, "user")
    text = message.text()
    if results:
        text = results[0] if isinstance(results[0], str) else json.dumps(results[0])
    out: JsonObject = {"class_": "text_observation", "content": text, "source": source}
    return {**out, "name": message.name} if message.name else out


def _write_answer(message: Message) -> list[JsonObject]:
    """Return an answer as actions: one for each call, what was said with the first of them."""
    reasoning = "\n".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
    calls = message.tool_calls()
    actions: list[JsonObject] = []
    for call in calls:
        kwargs: JsonObject = {"raw": call.arguments}
        if isinstance(call.arguments, dict):
            kwargs = call.arguments
        actions.append({"class_": "api_action", "function": call.name, "kwargs": kwargs})
    if not actions:
        actions.append({"class_": "message_action", "content": message.text()})
    elif message.text():
        actions[0]["description"] = message.text()
    if reasoning:
        actions[0]["reasoning_content"] = reasoning
    return actions


FORMAT = DocumentFormat("adp", "1.2.0 (1.0 to 1.2 are read)", _read, _write, at_path("details"))
import_document = FORMAT.import_document
export_document = FORMAT.export_document

__all__ = ["FORMAT", "export_document", "import_document"]
