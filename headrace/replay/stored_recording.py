"""A recording read from the lake: what one trajectory's models and tools answered, as stored."""

import json
from collections.abc import Iterable
from typing import Any

from lakehouse.lake import Lake
from lakehouse.read.conversations import StepConversation
from trajectory.call import Usage
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import as_object, as_text, objects
from trajectory.dialects.writer import ModelAnswer
from trajectory.errors import ConfigurationError
from trajectory.message import ToolResultPart
from trajectory.replay import RecordedAnswer, RecordedTool, TrajectoryRecording

_STEPS = (
    "select step_id, step_index, kind, role_in_graph, response_id, model_served, model_requested,"
    " finish_reason, input_tokens, output_tokens, cached_input_tokens, started_at, tool_calls,"
    " tool_results, error, tenant_id, harness_id, dialect from steps where trajectory_id = $id"
    " order by started_at, step_id"
)
_TOOLS = (
    "select distinct h.tools from steps s join harnesses h"
    " on s.tenant_id = h.tenant_id and s.harness_id = h.harness_id where s.trajectory_id = $id"
)
_SEPARATORS = "_-./:"


def load_recording(lake: Lake, trajectory_id: str) -> tuple[TrajectoryRecording, str]:
    """Return the recording of a trajectory, and its tenant.

    Raises:
        ConfigurationError: nothing in it can be played.
    """
    rows = lake.query(_STEPS, parameters={"id": trajectory_id}).to_pylist()
    conversations = {one.step_id: one for one in lake.conversation(trajectory_id)}
    answers = [
        _answer(row, found)
        for row in rows
        if row["kind"] == "model"
        and row["role_in_graph"] != "discarded"
        and (found := conversations.get(row["step_id"])) is not None
        and found.output is not None
    ]
    holes = [one.step_id for one in conversations.values() if not one.complete]
    if not answers or holes:
        why = "messages of it are not stored any more" if holes else "it has no answer of a model"
        raise ConfigurationError(f"{trajectory_id} cannot be replayed: {why}.")
    tools = [_tool(row) for row in rows if row["kind"] == "tool" and row["tool_calls"]]
    tools += _told(answers, tools)
    definitions = _definitions(lake, trajectory_id, {tool.name for tool in tools})
    recording = TrajectoryRecording(trajectory_id, tuple(answers), tuple(tools), tuple(definitions))
    return recording, str(rows[0]["tenant_id"])


def _answer(row: dict[str, Any], found: StepConversation) -> RecordedAnswer:
    if found.output is None:
        raise ValueError("a step without an answer")
    answer = ModelAnswer(
        found.output,
        row["response_id"] or f"replay-{row['step_id'][3:23]}",
        row["model_served"] or row["model_requested"] or "recorded",
        row["finish_reason"],
        Usage(row["input_tokens"], row["output_tokens"], row["cached_input_tokens"]),
        int(row["started_at"].timestamp()),
    )
    return RecordedAnswer(row["step_id"], row["step_index"], found.context, answer)


def _tool(row: dict[str, Any]) -> RecordedTool:
    call = row["tool_calls"][0]
    results = row["tool_results"] or [{"content": "null", "is_error": bool(row["error"])}]
    result: JsonValue = json.loads(results[0]["content"])
    if not isinstance(result, dict) or "content" not in result:
        text = row["error"] or (result if isinstance(result, str) else json.dumps(result))
        result = mcp_result(str(text), is_error=bool(results[0]["is_error"]))
    return RecordedTool(
        row["step_id"],
        call["name"],
        json.loads(call["arguments"]),
        result,
        on_wire=row["dialect"] == "mcp",
    )


def mcp_result(text: str, *, is_error: bool) -> JsonObject:
    """Return a text as an MCP tool result."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _told(answers: Iterable[RecordedAnswer], seen: list[RecordedTool]) -> list[RecordedTool]:
    """Return the tools that ran inside the agent: known from what the model was told."""
    calls, found = {}, {}
    on_wire = {(_key(tool.arguments), ending) for tool in seen for ending in _endings(tool.name)}
    for one in answers:
        calls.update({part.call_id: part for part in one.answer.message.tool_calls()})
        for message in one.context:
            for part in message.parts:
                asked = calls.get(part.call_id) if isinstance(part, ToolResultPart) else None
                if asked is None or not isinstance(part, ToolResultPart):
                    continue
                key = _key(asked.arguments)
                if not any((key, ending) in on_wire for ending in _endings(asked.name)):
                    text = part.content if isinstance(part.content, str) else _key(part.content)
                    result = mcp_result(text, is_error=part.is_error)
                    found[part.call_id] = RecordedTool(
                        one.step_id, asked.name, asked.arguments, result, on_wire=False
                    )
    return list(found.values())


def _key(value: JsonValue) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _endings(name: str) -> list[str]:
    """Return a name and its endings: clients write ``mcp__server__tool`` for ``tool``."""
    return [name, *(name[at + 1 :] for at, sign in enumerate(name) if sign in _SEPARATORS)]


def _definitions(lake: Lake, trajectory_id: str, names: set[str]) -> list[JsonObject]:
    """Return the tools as MCP lists them, described as the model was told."""
    found: dict[str, JsonObject] = {}
    for row in lake.query(_TOOLS, parameters={"id": trajectory_id}).to_pylist():
        for tool in objects(json.loads(row["tools"] or "[]")):
            inner = as_object(tool.get("function")) or tool
            schema = inner.get("parameters") or inner.get("input_schema")
            for name in _endings(as_text(inner.get("name")) or ""):
                if name in names and name not in found:
                    description = as_text(inner.get("description")) or ""
                    own: JsonObject = {"name": name, "description": description}
                    found[name] = {**own, "inputSchema": schema or {"type": "object"}}
    for name in sorted(names - set(found)):
        found[name] = {"name": name, "description": "", "inputSchema": {"type": "object"}}
    return [found[name] for name in sorted(found)]
