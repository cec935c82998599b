"""What artefacts are drawn from, and compared with: sessions, system prompts, definitions of tools.

Only eligible steps that allow the purpose ``evolve`` are read, up to the first of a trajectory that does not: later
ones may be shown again what was said there. Each part of a session says who speaks. A tool's answer is no person's
word, and what the owner of an agent wrote is its policy.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from train.chat import message_from_parts, result_text, to_tools
from train.substrate.source import LearningSource
from trajectory.canonical import JsonValue
from trajectory.message import Message, TextPart, ToolCallPart, ToolResultPart

PURPOSE = "evolve"
"""What a step must allow before anything is drawn from it."""

type Speaker = Literal["owner", "person", "model", "tool"]
"""The owner of an agent speaks in its system prompt."""
type Definition = dict[str, Any]
"""``{"description": …, "parameters": …}`` of a tool, whatever the dialect."""

_SPEAKERS: Mapping[str, Speaker] = {
    "system": "owner", "developer": "owner", "user": "person", "assistant": "model", "tool": "tool",
}  # fmt: skip
_FAILED = ("error", "traceback", "exception", "invalid", "validation")
"""How a failed tool's answer begins in dialects that have no word for failure."""

_SESSIONS = """
WITH barred AS (
    SELECT s.trajectory_id, min(s.started_at) AS since FROM steps s LEFT JOIN permissions p
    ON s.tenant_id = p.tenant_id AND s.trajectory_id = p.trajectory_id AND s.step_id = p.step_id
    WHERE s.tenant_id = $tenant AND s.kind = 'model' AND s.role_in_graph NOT IN ('shadow', 'discarded')
    AND NOT coalesce(p.refusal IS NULL AND list_contains(p.purposes, $purpose), false) GROUP BY ALL
), allowed AS (
    SELECT tenant_id, trajectory_id, step_id, started_at, kind, success, subjects,
           list_transform(tool_calls, lambda c: c.name) AS called
    FROM eligible_steps LEFT JOIN barred USING (trajectory_id)
    WHERE tenant_id = $tenant AND list_contains(purposes, $purpose)
    AND role_in_graph NOT IN ('shadow', 'discarded') AND coalesce(started_at < since, true)
), chosen AS (
    SELECT trajectory_id, max(started_at) AS newest, bool_or(success) AS success,
           list(subjects ORDER BY started_at, step_id) FILTER (kind = 'model') AS named
    FROM allowed GROUP BY trajectory_id
    HAVING ($steps::VARCHAR[] IS NULL OR list_has_any(list(step_id), $steps::VARCHAR[]))
    AND ($tools::VARCHAR[] IS NULL OR list_has_any(flatten(list(called)), $tools::VARCHAR[]))
    ORDER BY newest DESC, trajectory_id LIMIT $most
)
SELECT c.trajectory_id, h.newest, h.success, h.named, c.step_id, c.message_id, c.role, c.name, c.parts
FROM conversation c
JOIN chosen h USING (trajectory_id)
JOIN allowed a USING (tenant_id, trajectory_id, step_id)
WHERE c.parts IS NOT NULL
ORDER BY h.newest DESC, c.trajectory_id, c.started_at, c.step_index, c.position
"""
_HARNESSES = """
SELECT h.system_prompt, h.tools, max(s.started_at) AS newest
FROM harnesses h JOIN steps s ON s.tenant_id = h.tenant_id AND s.harness_id = h.harness_id
WHERE $tenant::VARCHAR IS NULL OR h.tenant_id = $tenant
GROUP BY h.system_prompt, h.tools ORDER BY newest DESC, h.system_prompt, h.tools LIMIT $most
"""
_MOST_HARNESSES = 100
_VERSIONS_OF_A_TOOL = 5


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One call of a tool that a model asked for, and what came of it."""

    name: str
    arguments: JsonValue = field(repr=False)
    answer: str | None = field(repr=False)
    """None where none is stored."""
    failed: bool
    answered_in: str | None
    """The step that was told the answer."""


@dataclass(frozen=True, slots=True)
class SessionTurn:
    """Something that was said or asked for in a session."""

    speaker: Speaker
    step_id: str
    text: str = field(default="", repr=False)
    use: ToolUse | None = None
    """A call; then there is no text."""


@dataclass(frozen=True, slots=True)
class AgentSession:
    """What happened in one trajectory, in order."""

    trajectory_id: str
    person: str
    """Keyed pseudonym of who used the application; the session's own id where nobody knows."""
    success: bool | None
    turns: tuple[SessionTurn, ...]

    @property
    def uses(self) -> list[ToolUse]:
        """The calls of tools."""
        return [turn.use for turn in self.turns if turn.use is not None]

    @property
    def steps(self) -> list[str]:
        """Ids of its steps, each once."""
        return list(dict.fromkeys(turn.step_id for turn in self.turns))


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """What the owners of agents wrote: system prompts, and definitions of tools, newest first."""

    prompts: tuple[str, ...] = field(default=(), repr=False)
    tools: Mapping[str, Sequence[Definition]] = field(default_factory=dict, repr=False)


def sessions_of(
    source: LearningSource,
    tenant: str,
    *,
    steps: Collection[str] | None = None,
    tools: Collection[str] | None = None,
    most: int = 1000,
) -> list[AgentSession]:
    """Return eligible sessions of a tenant, the newest first.

    Args:
        source: the lake.
        tenant: whose.
        steps: only sessions with one of these steps.
        tools: only sessions that call one of these tools.
        most: sessions at most.
    """
    rows = source.query(
        _SESSIONS,
        parameters={
            "tenant": tenant, "purpose": PURPOSE, "most": most,
            "steps": None if steps is None else sorted(steps),
            "tools": None if tools is None else sorted(tools),
        },
    ).to_pylist()  # fmt: skip
    grouped: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        grouped.setdefault(row["trajectory_id"], []).append(row)
    return [_session(one) for one in grouped.values()]


def _session(rows: Sequence[Mapping[str, Any]]) -> AgentSession:
    once = {row["message_id"]: row for row in reversed(rows)}
    said = [
        (row["step_id"], message_from_parts(row["role"], row["parts"], row["name"]))
        for row in rows
        if once[row["message_id"]] is row
    ]
    answers = {
        part.call_id: (step_id, part)
        for step_id, message in said
        for part in message.parts
        if isinstance(part, ToolResultPart)
    }
    turns = [turn for step_id, message in said for turn in _turns(step_id, message, answers)]
    first = rows[0]
    person = _user_in(first["named"] or ()) or first["trajectory_id"]
    return AgentSession(first["trajectory_id"], person, first["success"], tuple(turns))


def _user_in(named: Sequence[Sequence[str]]) -> str | None:
    """Return who uses an application, from whom each model call concerns.

    Such a person stands first, in each call that concerns anybody. Whom the texts name as well, and other names
    of the same person, may come and go.
    """
    told = [people for people in named if people]
    if not told:
        return None
    user = next((one for one in told[0] if all(one in people for people in told)), None)
    return user or min({one for people in told for one in people})


def people_of(sessions: Iterable[AgentSession]) -> int:
    """Return how many people had sessions; one of nobody known counts as one."""
    return len({one.person for one in sessions})


def _turns(
    step_id: str, message: Message, answers: Mapping[str, tuple[str, ToolResultPart]]
) -> Iterable[SessionTurn]:
    for part in message.parts:
        if isinstance(part, TextPart) and part.text.strip():
            yield SessionTurn(_SPEAKERS.get(message.role, "tool"), step_id, part.text)
        elif isinstance(part, ToolResultPart):
            yield SessionTurn("tool", step_id, result_text(part.content))
        elif isinstance(part, ToolCallPart):
            yield SessionTurn("model", step_id, use=_use(part, answers.get(part.call_id)))


def _use(part: ToolCallPart, answered: tuple[str, ToolResultPart] | None) -> ToolUse:
    if answered is None:
        return ToolUse(part.name, part.arguments, None, failed=False, answered_in=None)
    step_id, result = answered
    text = result_text(result.content)
    failed = result.is_error or text.lstrip(" {[\"'").lower().startswith(_FAILED)
    return ToolUse(part.name, part.arguments, text, failed, step_id)


def setup_of(source: LearningSource, tenant: str | None) -> AgentSetup:
    """Return what agents of a tenant were given by their owners; of all tenants without one."""
    rows = source.query(
        _HARNESSES, parameters={"tenant": tenant, "most": _MOST_HARNESSES}
    ).to_pylist()
    tools: dict[str, list[Definition]] = {}
    for row in rows:
        for name, found in _definitions(row["tools"]):
            known = tools.setdefault(name, [])
            if found not in known and len(known) < _VERSIONS_OF_A_TOOL:
                known.append(found)
    prompts = dict.fromkeys(row["system_prompt"] for row in rows if row["system_prompt"])
    return AgentSetup(tuple(prompts), tools)


def _definitions(stored: str | None) -> Iterable[tuple[str, Definition]]:
    for tool in to_tools(json.loads(stored or "[]")):
        function = tool["function"]
        if isinstance(function["name"], str) and isinstance(function["parameters"], dict):
            told = {name: function[name] for name in ("description", "parameters")}
            yield function["name"], {**told, "description": str(told["description"] or "")}
