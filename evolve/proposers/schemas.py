"""Tools' schemas: patches from validation errors that a later call of the same session did without.

Three kinds are drawn: an argument that has another name, one that is required, one with a list of
values. What calls without the change still succeed at is not proposed.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evolve.proposers.proposer import (
    ArtifactDraft,
    ProposalBounds,
    TenantEvidence,
    nameable,
    plain_name,
)
from train.inspection.evidence import AgentSession, Definition, ToolUse, people_of
from trajectory.artifact import MOST_STEPS, ArtifactSurface
from trajectory.canonical import canonical_json

_ENUM = re.compile(
    r"(?:must be|should be|expected|is not|not) (?:one of|any of|in)\b[ :([]*(?:the (?:following|values)[ :]*)?([^\n]{1,400})"
    r"|input should be ([^\n]{1,400})|allowed values(?: are)?[ :([]+([^\n]{1,400})",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"['\"`\u2018\u201c]([^'\"`\u2019\u201d]{1,60})['\"`\u2019\u201d]")
_REQUIRED = re.compile(r"required|missing|must be (?:given|present|set|provided)", re.IGNORECASE)
_VALUES = 50
_TYPES = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


type _Seen = tuple[int, tuple[str, ...]]
"""Place of a session, and the steps of it that were told an error and the next answer."""


@dataclass(frozen=True, slots=True)
class _Mend:
    """A change of a schema that one session suggests."""

    tool: str
    kind: Literal["renamed", "required", "values"]
    argument: str
    told: tuple[str, ...]
    """Its new name, or the values that are allowed, or its type."""


class SchemaMends:
    """Proposes patches of tools' schemas from validation errors."""

    name = "headrace:schema-mends"
    surface: ArtifactSurface = "tools"

    def propose(self, evidence: TenantEvidence, bounds: ProposalBounds) -> Iterator[ArtifactDraft]:
        """Yield one patch for each tool whose calls failed and were mended alike often enough."""
        sessions = evidence.sessions
        seen: dict[_Mend, list[_Seen]] = defaultdict(list)
        for at, session in enumerate(sessions):
            for mend, steps in _mends(session):
                seen[mend].append((at, steps))
        by_tool: dict[str, list[_Mend]] = defaultdict(list)
        for mend, found in seen.items():
            since = sessions[: max(at for at, _ in found) + 1]
            if _people(sessions, found) < bounds.people or _denied(mend, since):
                continue
            if bounds.tool in (None, mend.tool) and mend.tool in evidence.setup.tools:
                by_tool[mend.tool].append(mend)
        for tool in sorted(by_tool):
            share = MOST_STEPS // len(by_tool[tool])
            drawn = {
                one: nameable(seen[one], lambda found: found[1], share) for one in by_tool[tool]
            }
            mends = sorted(
                (one for one, own in drawn.items() if _people(sessions, own) >= bounds.people),
                key=lambda one: (one.kind, one.argument, one.told),
            )
            applied, operations = _patch(tool, evidence.setup.tools[tool][0], mends)
            if operations:
                named = {step for one in applied for _, own in drawn[one] for step in own}
                said = f"What calls of {tool} were told is wrong: {'; '.join(map(_said, applied))}."
                patch = {"tools": {"patch": operations}}
                yield ArtifactDraft(f"schema-{plain_name(tool)}", said, patch, tuple(sorted(named)))


def _people(sessions: Sequence[AgentSession], found: Iterable[_Seen]) -> int:
    return people_of(sessions[at] for at, _ in found)


def _mends(session: AgentSession) -> Iterator[tuple[_Mend, tuple[str, ...]]]:
    uses = session.uses
    for at, failed in enumerate(uses):
        later = next(
            (one for one in uses[at + 1 :] if one.name == failed.name and not one.failed and one.answer),
            None,
        )  # fmt: skip
        if not failed.failed or later is None:
            continue
        before, after = failed.arguments, later.arguments
        if isinstance(before, dict) and isinstance(after, dict):
            steps = tuple(
                step for step in (failed.answered_in, later.answered_in) if step is not None
            )
            for mend in _differences(failed, before, after):
                yield mend, steps


def _differences(failed: ToolUse, before: dict[str, Any], after: dict[str, Any]) -> Iterator[_Mend]:
    error, tool = failed.answer or "", failed.name
    gone = [name for name in before if name not in after]
    fresh = [name for name in after if name not in before]
    for name in list(fresh):
        same = next(
            (old for old in gone if before[old] == after[name] and _names(error, old)), None
        )
        if same is not None:
            gone.remove(same)
            fresh.remove(name)
            yield _Mend(tool, "renamed", same, (name,))
    for name in fresh:
        if _REQUIRED.search(error) and _names(error, name):
            yield _Mend(tool, "required", name, (_type_of(after[name]),))
    for name in before.keys() & after.keys():
        old, new = before[name], after[name]
        if isinstance(old, str) and isinstance(new, str) and old != new:
            values = _listed(error, old)
            if new in values and old not in values and (_names(error, name) or old in error):
                yield _Mend(tool, "values", name, values)


def _names(error: str, argument: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(argument)}(?!\w)", error) is not None


def _listed(error: str, given: str) -> tuple[str, ...]:
    """Return the values that an error says are allowed."""
    match = _ENUM.search(error)
    if match is None:
        return ()
    tail = next(group for group in match.groups() if group)
    values = _QUOTED.findall(tail) or [
        one.strip(" .[](){}") for one in re.split(r",|\bor\b|\|", tail.partition(". ")[0])
    ]
    found = [one for one in dict.fromkeys(values) if one and one != given]
    return tuple(sorted(found)) if 0 < len(found) <= _VALUES else ()


def _type_of(value: object) -> str:
    return _TYPES.get(type(value), "string")


def _denied(mend: _Mend, sessions: Iterable[AgentSession]) -> bool:
    """Tell whether a call that the change would forbid succeeded since it was first seen."""
    for session in sessions:
        for use in session.uses:
            given = use.arguments
            if use.name != mend.tool or use.failed or use.answer is None:
                continue
            if not isinstance(given, dict):
                continue
            if mend.kind == "renamed" and mend.argument in given:
                return True
            if mend.kind == "required" and mend.argument not in given:
                return True
            if mend.kind == "values" and given.get(mend.argument, mend.told[0]) not in mend.told:
                return True
    return False


def _patch(
    tool: str, definition: Definition, mends: Sequence[_Mend]
) -> tuple[list[_Mend], list[dict[str, Any]]]:
    """Return the changes that the definition does not have already, and the operations for them."""
    schema = definition["parameters"]
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return [], []
    root = f"/{_escaped(tool)}/parameters"
    before = [one for one in schema.get("required") or () if isinstance(one, str)]
    required, applied, operations = list(before), [], []
    for mend in mends:
        name, place = mend.argument, f"{root}/properties/{_escaped(mend.argument)}"
        known = properties.get(name)
        if mend.kind == "renamed" and known is not None and mend.told[0] not in properties:
            target = f"{root}/properties/{_escaped(mend.told[0])}"
            operations += [_test(place, known), {"op": "move", "from": place, "path": target}]
            required = [mend.told[0] if one == name else one for one in required]
        elif mend.kind == "required" and name not in required:
            if known is None:
                operations.append({"op": "add", "path": place, "value": {"type": mend.told[0]}})
            required.append(name)
        elif mend.kind == "values" and isinstance(known, dict):
            if sorted(map(str, known.get("enum") or ())) == list(mend.told):
                continue
            operations += [
                _test(place, known),
                {"op": "add", "path": f"{place}/enum", "value": list(mend.told)},
            ]
        else:
            continue
        applied.append(mend)
    if required != before:
        place = f"{root}/required"
        if "required" in schema:
            operations.insert(0, _test(place, schema["required"]))
        operations.append({"op": "add", "path": place, "value": required})
    return applied, operations


def _test(place: str, value: Any) -> dict[str, Any]:
    """Return the operation that limits a patch to definitions as this one."""
    return {"op": "test", "path": place, "value": value}


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _said(mend: _Mend) -> str:
    if mend.kind == "renamed":
        return f"{mend.argument} is named {mend.told[0]}"
    if mend.kind == "required":
        return f"{mend.argument} is required"
    return f"{mend.argument} is one of {canonical_json(list(mend.told)).decode()}"
