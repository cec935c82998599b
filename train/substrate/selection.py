"""Asks the lake which steps may be learned from, and why the others may not."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import polars as pl

from lakehouse.rewards import Reward, RewardUnit, rewards_of
from train.substrate.items import StepRow
from train.substrate.source import LearningSource, frame_of
from train.substrate.spec import RewardSpec, SubstrateSpec
from train.types import Item
from trajectory.errors import DocumentError

_CAPTURE_LEVELS = {
    "text": ("text", "logprobs", "tokens"),
    "logprobs": ("logprobs", "tokens"),
    "tokens": ("tokens",),
}

_JUDGED = """
WITH judged AS (
    SELECT s.* REPLACE (CASE WHEN s.capture_level = 'tokens' AND x.step_id IS NULL THEN 'text'
                             ELSE s.capture_level END AS capture_level),
           h.tools_id,
           e.step_id IS NOT NULL AND coalesce(e.purposed, false) AS permitted,
           e.policy_hash AS decided_under,
           CASE WHEN s.kind <> 'model' THEN 'tool_step'
                WHEN e.step_id IS NULL THEN 'not_eligible:' || coalesce(p.refusal, 'no_decision')
                WHEN NOT coalesce(e.purposed, false) THEN 'purpose_not_allowed'
                WHEN NOT coalesce(e.chosen, false) THEN 'where'
                WHEN s.role_in_graph <> 'agent' THEN 'role_' || s.role_in_graph
                WHEN NOT list_contains({levels}, s.capture_level) THEN 'capture_level'
                WHEN {exact} AND x.step_id IS NULL THEN 'tokens_not_exact'
                WHEN {inferred} AND s.key_source IN ('prefix', 'none') THEN 'inferred_session'
           END AS refusal
    FROM steps s LEFT JOIN (
        SELECT tenant_id, step_id, policy_hash, list_has_all(purposes, {purposes}) AS purposed,
               ({where}) AS chosen
        FROM eligible_steps
    ) e ON s.tenant_id = e.tenant_id AND s.step_id = e.step_id
    LEFT JOIN (
        SELECT DISTINCT tenant_id, step_id FROM tokens
        WHERE token_fidelity IN ('exact', 'pseudonymised_inline') AND prompt_token_ids IS NOT NULL
    ) x ON s.tenant_id = x.tenant_id AND s.step_id = x.step_id
    LEFT JOIN (
        SELECT tenant_id, harness_id, any_value(md5(tools)) AS tools_id
        FROM harnesses WHERE tools <> '[]' GROUP BY tenant_id, harness_id
    ) h ON s.tenant_id = h.tenant_id AND s.harness_id = h.harness_id
    LEFT JOIN permissions p ON s.tenant_id = p.tenant_id AND s.step_id = p.step_id
    WHERE {part}
)
"""

_STEP_COLUMNS = (
    "tenant_id, trajectory_id, step_id, parent_step_id, step_index, started_at, context_keep, "
    "context_message_ids, output_message_id, harness_id, group_id, session_hint, key_source, "
    "capture_level, model_served, refusal, NOT permitted AS forbidden, decided_under, exchange_id, "
    "tools_id"
)
_MOST_LEADING = 4
"""System prompts that a context begins with are looked for among so many messages."""


class Part(NamedTuple):
    """One of several parts of a lake's trajectories; together they are all of them, each once."""

    number: int
    of: int

    @property
    def condition(self) -> str:
        """SQL that holds for the steps of this part, the same in every version of DuckDB."""
        return f"md5_number_lower(s.trajectory_id) % {self.of} = {self.number}"


def _judged(spec: SubstrateSpec, part: Part | None) -> str:
    if ";" in spec.where:
        raise DocumentError("spec.where: holds ';'; it is one condition, without a statement's end")
    return _JUDGED.format(
        levels=_list(_CAPTURE_LEVELS[spec.require.capture_level]),
        exact=str(spec.require.capture_level == "tokens").lower(),
        inferred=str(not spec.require.inferred_sessions).lower(),
        purposes=_list(spec.purposes),
        where=spec.where,
        part=part.condition if part else "true",
    )


def _list(values: Sequence[str]) -> str:
    quoted = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
    return f"[{quoted}]"


class SelectedStep(NamedTuple):
    """A step, the policy under which it may be learned from, and the exchange it came from."""

    step: StepRow
    policy_hash: str | None
    exchange_id: str


def steps_of(
    source: LearningSource,
    spec: SubstrateSpec,
    *,
    as_of: Mapping[str, int],
    part: Part | None = None,
) -> Iterator[SelectedStep]:
    """Yield every model step of each trajectory that has something to learn from, in order."""
    table = source.query(
        f"{_judged(spec, part)} SELECT {_STEP_COLUMNS} FROM judged "  # noqa: S608
        "WHERE kind = 'model' AND trajectory_id IN "
        "(SELECT trajectory_id FROM judged WHERE refusal IS NULL) "
        "ORDER BY tenant_id, trajectory_id, step_index, step_id",
        as_of=as_of,
    )
    prompts = _system_prompts(source, as_of=as_of, part=part)
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            policy_hash, exchange_id = row.pop("decided_under"), row.pop("exchange_id")
            context = tuple(row["context_message_ids"] or ())
            own = takewhile(prompts.__contains__, context[:_MOST_LEADING])
            row["leading"] = 0 if row["context_keep"] else len(list(own))
            yield SelectedStep(
                StepRow(**{**row, "context_message_ids": context}), policy_hash, exchange_id
            )


def _system_prompts(
    source: LearningSource, *, as_of: Mapping[str, int], part: Part | None
) -> frozenset[str]:
    """Return the ids of the system prompts that contexts begin with."""
    table = source.query(
        "SELECT DISTINCT message_id FROM messages WHERE role IN ('system', 'developer') "  # noqa: S608
        f"AND message_id IN (SELECT unnest(s.context_message_ids[1:{_MOST_LEADING}]) FROM steps s "
        f"WHERE s.context_keep = 0 AND {part.condition if part else 'true'})",
        as_of=as_of,
    )
    return frozenset(table["message_id"].to_pylist())


def refusals_elsewhere(
    source: LearningSource,
    spec: SubstrateSpec,
    *,
    as_of: Mapping[str, int],
    part: Part | None = None,
) -> Counter[str]:
    """Count by reason the steps that :func:`steps_of` does not yield."""
    table = source.query(
        f"{_judged(spec, part)} "  # noqa: S608
        "SELECT refusal, count(*) AS steps FROM judged WHERE refusal IS NOT NULL "
        "AND (kind <> 'model' OR trajectory_id NOT IN "
        "(SELECT trajectory_id FROM judged WHERE refusal IS NULL)) GROUP BY refusal",
        as_of=as_of,
    )
    return Counter({row["refusal"]: row["steps"] for row in table.to_pylist()})


def lost_items(source: LearningSource, file: Path, purposes: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of the items in a Parquet file of items that may not be learned from now.

    Each of their steps must be permitted, and each that their conversation goes on from: it shows what that said.
    """
    permitted = frame_of(
        source.query(
            "SELECT tenant_id, step_id FROM eligible_steps "  # noqa: S608 (purposes are a fixed set)
            f"WHERE list_has_all(purposes, {_list(purposes)})"
        )
    ).lazy()
    known = pl.read_parquet_schema(file)  # what an earlier version wrote names no context
    shown = pl.concat_list([name for name in ("step_ids", "context_step_ids") if name in known])
    steps = pl.scan_parquet(file).select("item_id", "tenant_id", step_id=shown)
    lost = steps.explode("step_id").join(permitted, on=["tenant_id", "step_id"], how="anti")
    return tuple(lost.select(pl.col("item_id").unique().sort()).collect()["item_id"])


def item_rewards(
    source: LearningSource, items: Sequence[Item], spec: RewardSpec, *, as_of: Mapping[str, int]
) -> dict[str, Reward]:
    """Return item_id → reward by the spec's weights, of signals about its own steps or above them."""
    units = [
        RewardUnit(item.item_id, item.tenant_id, item.trajectory_id, item.step_ids)
        for item in items
    ]
    return rewards_of(
        lambda sql, values: source.query(sql, parameters=values, as_of=as_of), units, spec.weights
    )
