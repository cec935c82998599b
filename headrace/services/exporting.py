"""Export of trajectories to other formats, only what policy allows for a purpose."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.services.importing import find_format
from lakehouse.lake import Lake
from lakehouse.read.conversations import StepConversation
from trajectory.call import TokenCapture, Usage
from trajectory.canonical import JsonObject
from trajectory.errors import ConfigurationError
from trajectory.imported import restored
from trajectory.json_form import time_text
from trajectory.portable import PortableSignal, PortableStep, Trajectory

PURPOSES = ("debug", "eval", "train_sft", "train_preference", "train_rl", "share")
_STEP_COLUMNS = (
    "step_id, parent_step_id, started_at, ended_at, model_served, model_requested, response_id, "
    "finish_reason, sampling, input_tokens, output_tokens, cached_input_tokens, ext"
)
_EXACT_COLUMNS = (
    "step_id, prompt_token_ids, completion_token_ids, logprobs, loss_mask, token_fidelity"
)
_SIGNAL_COLUMNS = (
    "name, value, label, rationale, source_kind, source, source_version, confidence, observed_at"
)


@dataclass(slots=True)
class ExportReport:
    """What an export wrote, and what its documents do not hold."""

    documents: int = 0
    trajectories: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    """Field of a trajectory → number of documents without it."""


def export_trajectories(
    lake: Lake, output: Path, *, where: str, purpose: str, document_format: str
) -> ExportReport:
    """Write one JSON line per document; return how many, and what they do not hold.

    Args:
        lake: the lake.
        output: file to write.
        where: SQL condition over the view ``trajectories``.
        purpose: every step of a trajectory must be allowed for it.
        document_format: a name of ``trajectory.formats.catalog``.

    Raises:
        ConfigurationError: the purpose or the format is unknown.
    """
    if purpose not in PURPOSES:
        raise ConfigurationError(f"unknown purpose {purpose!r}. Valid: {', '.join(PURPOSES)}.")
    form = find_format(document_format)
    report = ExportReport()

    def found() -> Iterator[Trajectory]:
        for trajectory_id in _allowed(lake, where, purpose):
            trajectory = portable(lake, trajectory_id)
            if trajectory is not None:
                report.trajectories += 1
                yield trajectory

    with output.open("w", encoding="utf-8") as file:
        for written in form.write(found()):
            file.write(json.dumps(written.document, ensure_ascii=False) + "\n")
            report.documents += 1
            report.lost.update(written.lost)
    return report


def portable(lake: Lake, trajectory_id: str) -> Trajectory | None:
    """Return the path to the last answer of a trajectory; None when it has no whole one."""
    whole = {
        step.step_id: step
        for step in lake.conversation(trajectory_id)
        if step.output is not None and step.complete
    }
    if not whole:
        return None
    rows = {row["step_id"]: row for row in _rows(lake, _STEP_COLUMNS, "steps", trajectory_id)}
    last = max(whole.values(), key=lambda step: (len(step.context), step.step_index))
    path = _path(last, whole, rows)
    tokens = {row["step_id"]: row for row in _rows(lake, _EXACT_COLUMNS, "tokens", trajectory_id)}
    signals = _step_signals(lake, trajectory_id)
    steps, said = [], 0
    for step in path:
        made = _step(step, said, rows[step.step_id], tokens.get(step.step_id))
        steps.append(replace(made, signals=tuple(signals.get(step.step_id, ()))))
        said = len(step.context) + 1
    trajectory = Trajectory(
        steps=tuple(steps),
        trajectory_id=trajectory_id,
        agent_name="agent",
        agent_version="unknown",
        tools=_tools(lake, last.step_id),
        signals=tuple(_signals(lake, trajectory_id)),
    )
    return restored(trajectory, [json.loads(rows[step.step_id]["ext"]) for step in path])


def _path(
    last: StepConversation, whole: dict[str, StepConversation], rows: dict[str, Any]
) -> list[StepConversation]:
    """Return the steps whose answers stand in the last one's conversation, in order."""
    path = [last]
    parent = rows[last.step_id]["parent_step_id"]
    while parent in whole:
        step = whole[parent]
        if last.context_ids[: len(step.context)] == step.context_ids:
            path.append(step)
        parent = rows[parent]["parent_step_id"]
    return path[::-1]


def _step(
    step: StepConversation, said: int, row: dict[str, Any], tokens: dict[str, Any] | None
) -> PortableStep:
    output = step.output
    assert output is not None  # noqa: S101 - only steps with an answer come here
    if tokens is not None and tokens["token_fidelity"] == "none":  # noqa: S105 - a fixed word
        tokens = None
    return PortableStep(
        observed=step.context[said:],
        output=output,
        step_id=step.step_id,
        timestamp=time_text(row["started_at"]),
        ended_at=None if row["ended_at"] is None else time_text(row["ended_at"]),
        model=row["model_served"] or row["model_requested"],
        response_id=row["response_id"],
        finish_reason=row["finish_reason"],
        sampling=json.loads(row["sampling"] or "{}"),
        usage=Usage(row["input_tokens"], row["output_tokens"], row["cached_input_tokens"]),
        tokens=None if tokens is None else _capture(tokens),
        loss_mask=None if tokens is None else _tuple(tokens["loss_mask"]),
    )


def _capture(row: dict[str, Any]) -> TokenCapture:
    return TokenCapture(
        _tuple(row["prompt_token_ids"]),
        tuple(row["completion_token_ids"]),
        _tuple(row["logprobs"]),
    )


def _tuple(value: list[Any] | None) -> tuple[Any, ...] | None:
    return None if value is None else tuple(value)


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


def _rows(lake: Lake, columns: str, table: str, trajectory_id: str) -> list[dict[str, Any]]:
    sql = f"select {columns} from {table} where trajectory_id = $id"  # noqa: S608 - fixed names
    return list(lake.query(sql, parameters={"id": trajectory_id}).to_pylist())


def _tools(lake: Lake, step_id: str) -> tuple[JsonObject, ...]:
    rows = lake.query(
        "select any_value(h.tools) as tools from steps s join harnesses h "
        "on s.tenant_id = h.tenant_id and s.harness_id = h.harness_id where s.step_id = $id",
        parameters={"id": step_id},
    ).to_pylist()
    return tuple(json.loads(rows[0]["tools"] or "[]")) if rows else ()


def _signals(lake: Lake, trajectory_id: str) -> Iterator[PortableSignal]:
    """Return the signals about the whole; those about steps stand with their steps."""
    sql = (
        f"select {_SIGNAL_COLUMNS} from rewards_latest "  # noqa: S608 - fixed names
        "where trajectory_id = $id and step_id is null order by name, source"
    )
    for row in lake.query(sql, parameters={"id": trajectory_id}).to_pylist():
        yield _signal(row)


def _step_signals(lake: Lake, trajectory_id: str) -> dict[str, list[PortableSignal]]:
    sql = (
        f"select step_id, {_SIGNAL_COLUMNS} from rewards_latest "  # noqa: S608 - fixed names
        "where trajectory_id = $id and step_id is not null order by observed_at, name, source"
    )
    found: dict[str, list[PortableSignal]] = {}
    for row in lake.query(sql, parameters={"id": trajectory_id}).to_pylist():
        found.setdefault(row.pop("step_id"), []).append(_signal(row))
    return found


def _signal(row: dict[str, Any]) -> PortableSignal:
    return PortableSignal(**{**row, "observed_at": time_text(row["observed_at"])})
