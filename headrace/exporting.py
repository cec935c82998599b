"""Export of trajectories to other formats, only what policy allows for a purpose."""

import json
from collections.abc import Iterator
from pathlib import Path

from lakehouse.lake import Lake
from trajectory.canonical import JsonObject
from trajectory.errors import ConfigurationError
from trajectory.formats import atif, openai_messages
from trajectory.portable import PortableSignal, Trajectory, split_steps

PURPOSES = ("debug", "eval", "train_sft", "train_preference", "train_rl", "share")
FORMATS = {"openai-messages": openai_messages.export_document, "atif": atif.export_document}


def export_trajectories(
    lake: Lake, output: Path, *, where: str, purpose: str, document_format: str
) -> int:
    """Write one JSON line per trajectory; return how many.

    Args:
        lake: the lake.
        output: file to write.
        where: SQL condition over the view ``trajectories``.
        purpose: every step of a trajectory must be allowed for it.
        document_format: one of :data:`FORMATS`.

    Raises:
        ConfigurationError: the purpose or the format is unknown.
    """
    if purpose not in PURPOSES:
        raise ConfigurationError(f"unknown purpose {purpose!r}. Valid: {', '.join(PURPOSES)}.")
    if document_format not in FORMATS:
        raise ConfigurationError(
            f"unknown format {document_format!r}. Valid: {', '.join(FORMATS)}."
        )
    write = FORMATS[document_format]
    count = 0
    with output.open("w", encoding="utf-8") as file:
        for trajectory_id in _allowed(lake, where, purpose):
            trajectory = portable(lake, trajectory_id)
            if trajectory is not None:
                file.write(json.dumps(write(trajectory), ensure_ascii=False) + "\n")
                count += 1
    return count


def portable(lake: Lake, trajectory_id: str) -> Trajectory | None:
    """Return the path to the last answer of a trajectory; None when it has no whole one."""
    whole = [
        step
        for step in lake.conversation(trajectory_id)
        if step.output is not None and step.complete
    ]
    if not whole:
        return None
    last = max(whole, key=lambda step: (len(step.context), step.step_index))
    messages = (*last.context, *([last.output] if last.output else ()))
    steps, trailing = split_steps(messages)
    return Trajectory(
        steps=steps,
        trailing=trailing,
        trajectory_id=trajectory_id,
        agent_name="agent",
        agent_version="unknown",
        tools=_tools(lake, last.step_id),
        signals=tuple(_signals(lake, trajectory_id)),
    )


def _allowed(lake: Lake, where: str, purpose: str) -> list[str]:
    found = lake.query(
        "select t.trajectory_id from trajectories t where t.trajectory_id not in ("  # noqa: S608 - the user's own condition on their own lake
        "  select s.trajectory_id from steps s left join eligible_steps e"
        "    on s.tenant_id = e.tenant_id and s.step_id = e.step_id"
        "  where e.step_id is null or not list_contains(e.purposes, $purpose)"
        f") and ({where}) order by t.started_at, t.trajectory_id",
        parameters={"purpose": purpose},
    )
    return [str(name) for name in found["trajectory_id"].to_pylist()]


def _tools(lake: Lake, step_id: str) -> tuple[JsonObject, ...]:
    rows = lake.query(
        "select any_value(h.tools) as tools from steps s join harnesses h "
        "on s.tenant_id = h.tenant_id and s.harness_id = h.harness_id where s.step_id = $id",
        parameters={"id": step_id},
    ).to_pylist()
    return tuple(json.loads(rows[0]["tools"] or "[]")) if rows else ()


def _signals(lake: Lake, trajectory_id: str) -> Iterator[PortableSignal]:
    rows = lake.query(
        "select name, value, label, source_kind from trajectory_rewards "
        "where trajectory_id = $id order by name",
        parameters={"id": trajectory_id},
    ).to_pylist()
    for row in rows:
        yield PortableSignal(**row)
