"""Export of trajectories to other formats, only what policy allows for a purpose."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from headrace.app.output import output_file
from headrace.services.imports import find_format
from lakehouse.lake import Lake
from lakehouse.read.conversations import StepConversation
from proxy.clients.keys import PURPOSES
from trajectory.call import TokenCapture, Usage
from trajectory.errors import ConfigurationError
from trajectory.imports import restored
from trajectory.json_form import time_text
from trajectory.portable import PortableSignal, PortableStep, Trajectory

_PAGE = 200
"""Trajectories that are read together: each query opens a snapshot of every table."""
_STEPS = """
select s.trajectory_id, s.step_id, s.parent_step_id, s.started_at, s.ended_at, s.model_served,
       s.model_requested, s.response_id, s.finish_reason, s.sampling, s.input_tokens,
       s.output_tokens, s.cached_input_tokens, s.ext, h.tools, p.purposes, p.legal_basis, p.subjects
from steps s left join permissions p
  on s.tenant_id = p.tenant_id and s.step_id = p.step_id and p.refusal is null
left join (
    select tenant_id, harness_id, any_value(tools) as tools from harnesses
    group by tenant_id, harness_id
) h on s.tenant_id = h.tenant_id and s.harness_id = h.harness_id
where s.trajectory_id in (select unnest($ids::varchar[]))
"""
_TOKENS = """
select trajectory_id, step_id, prompt_token_ids, completion_token_ids, logprobs, loss_mask,
       token_fidelity
from tokens where trajectory_id in (select unnest($ids::varchar[]))
"""
_SIGNALS = """
select trajectory_id, step_id, name, value, label, rationale, source_kind, source,
       source_version, confidence, observed_at
from rewards_latest where trajectory_id in (select unnest($ids::varchar[]))
order by step_id nulls first, if(step_id is null, null, observed_at), name, source
"""


@dataclass(slots=True)
class ExportReport:
    """Result of an export: documents written, and fields that they cannot hold."""

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
        names = _allowed(lake, where, purpose)
        for start in range(0, len(names), _PAGE):
            for trajectory in portable(lake, names[start : start + _PAGE]):
                report.trajectories += 1
                yield trajectory

    with output_file(output) as file:
        for written in form.write(found()):
            file.write(json.dumps(written.document, ensure_ascii=False).encode() + b"\n")
            report.documents += 1
            report.lost.update(written.lost)
    return report


def portable(lake: Lake, trajectory_ids: Sequence[str]) -> Iterator[Trajectory]:
    """Yield the path to the last answer of each trajectory, in order; one without any has none."""
    conversations: dict[str, dict[str, StepConversation]] = {}
    for step in lake.conversations(trajectory_ids=trajectory_ids).values():
        if step.output is not None and step.complete:
            conversations.setdefault(step.trajectory_id, {})[step.step_id] = step
    rows = _rows(lake, _STEPS, trajectory_ids)
    tokens = _rows(lake, _TOKENS, trajectory_ids)
    signals = _rows(lake, _SIGNALS, trajectory_ids)
    for name in trajectory_ids:
        if name in conversations:
            yield _trajectory(
                conversations[name], rows[name], tokens.get(name, []), signals.get(name, [])
            )


def _trajectory(
    whole: dict[str, StepConversation],
    rows: list[dict[str, Any]],
    tokens: list[dict[str, Any]],
    signals: list[dict[str, Any]],
) -> Trajectory:
    steps_by_id = {row["step_id"]: row for row in rows}
    tokens_by_id = {row["step_id"]: row for row in tokens}
    last = max(whole.values(), key=lambda step: (len(step.context), step.step_index))
    path = _path(last, whole, steps_by_id)
    steps, said = [], 0
    for step in path:
        made = _step(step, said, steps_by_id[step.step_id], tokens_by_id.get(step.step_id))
        about = (_signal(row) for row in signals if row["step_id"] == step.step_id)
        steps.append(replace(made, signals=tuple(about)))
        said = len(step.context) + 1
    trajectory = Trajectory(
        steps=tuple(steps),
        trajectory_id=last.trajectory_id,
        agent_name="agent",
        agent_version="unknown",
        tools=tuple(json.loads(steps_by_id[last.step_id]["tools"] or "[]")),
        signals=tuple(_signal(row) for row in signals if row["step_id"] is None),
    )
    return restored(trajectory, [json.loads(steps_by_id[step.step_id]["ext"]) for step in path])


def _path(
    last: StepConversation, whole: dict[str, StepConversation], rows: dict[str, Any]
) -> list[StepConversation]:
    """Return the steps whose answers the last step's conversation contains, in order."""
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
        purposes=tuple(row["purposes"] or ()),  # none, not all, where the step may not be used
        legal_basis=row["legal_basis"],
        subjects=tuple(row["subjects"] or ()),
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


def _rows(lake: Lake, sql: str, trajectory_ids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows about these trajectories, in order, by trajectory."""
    frame = pl.from_arrow(lake.query(sql, parameters={"ids": list(trajectory_ids)}))
    assert isinstance(frame, pl.DataFrame)  # noqa: S101 - a table gives a frame
    parts = frame.partition_by("trajectory_id", as_dict=True, include_key=False)
    return {str(name): part.to_dicts() for (name,), part in parts.items()}


def _signal(row: dict[str, Any]) -> PortableSignal:
    said = {name: value for name, value in row.items() if name != "step_id"}
    return PortableSignal(**{**said, "observed_at": time_text(row["observed_at"])})
