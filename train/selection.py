"""Asks the lake which steps may be learned from, and why the others may not."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from train.errors import DocumentError
from train.items import Item, StepRow
from train.source import LearningSource
from train.substrate_spec import RewardSpec, SubstrateSpec

_CAPTURE_LEVELS = {
    "text": ("text", "logprobs", "tokens"),
    "logprobs": ("logprobs", "tokens"),
    "tokens": ("tokens",),
}

_JUDGED = """
WITH judged AS (
    SELECT s.*, e.step_id IS NOT NULL AND coalesce(e.purposed, false) AS permitted,
           e.policy_hash AS decided_under,
           CASE WHEN s.kind <> 'model' THEN 'tool_step'
                WHEN e.step_id IS NULL THEN 'not_eligible:' || coalesce(p.refusal, 'no_decision')
                WHEN NOT coalesce(e.purposed, false) THEN 'purpose_not_allowed'
                WHEN NOT coalesce(e.chosen, false) THEN 'where'
                WHEN s.role_in_graph <> 'agent' THEN 'role_' || s.role_in_graph
                WHEN NOT list_contains({levels}, s.capture_level) THEN 'capture_level'
                WHEN {inferred} AND s.key_source IN ('prefix', 'none') THEN 'inferred_session'
           END AS refusal
    FROM steps s LEFT JOIN (
        SELECT tenant_id, step_id, policy_hash, list_has_all(purposes, {purposes}) AS purposed,
               ({where}) AS chosen
        FROM eligible_steps
    ) e ON s.tenant_id = e.tenant_id AND s.step_id = e.step_id
    LEFT JOIN permissions p ON s.tenant_id = p.tenant_id AND s.step_id = p.step_id
)
"""

_STEP_COLUMNS = (
    "tenant_id, trajectory_id, step_id, parent_step_id, step_index, started_at, context_keep, "
    "context_message_ids, output_message_id, harness_id, group_id, session_hint, key_source, "
    "capture_level, model_served, refusal, NOT permitted AS forbidden, decided_under, exchange_id"
)


def _judged(spec: SubstrateSpec) -> str:
    if ";" in spec.where:
        raise DocumentError("spec.where: holds ';'; it is one condition, without a statement's end")
    return _JUDGED.format(
        levels=_list(_CAPTURE_LEVELS[spec.require.capture_level]),
        inferred=str(not spec.require.inferred_sessions).lower(),
        purposes=_list(spec.purposes),
        where=spec.where,
    )


def _list(values: tuple[str, ...]) -> str:
    quoted = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
    return f"[{quoted}]"


class SelectedStep(NamedTuple):
    """A step, the policy under which it may be learned from, and the exchange it came from."""

    step: StepRow
    policy_hash: str | None
    exchange_id: str


def steps_of(
    source: LearningSource, spec: SubstrateSpec, *, as_of: Mapping[str, int]
) -> Iterator[SelectedStep]:
    """Yield every model step of each trajectory that has something to learn from, in order."""
    table = source.query(
        f"{_judged(spec)} SELECT {_STEP_COLUMNS} FROM judged "  # noqa: S608
        "WHERE kind = 'model' AND trajectory_id IN "
        "(SELECT trajectory_id FROM judged WHERE refusal IS NULL) "
        "ORDER BY tenant_id, trajectory_id, step_index, step_id",
        as_of=as_of,
    )
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            policy_hash, exchange_id = row.pop("decided_under"), row.pop("exchange_id")
            row["context_message_ids"] = tuple(row["context_message_ids"] or ())
            yield SelectedStep(StepRow(**row), policy_hash, exchange_id)


def refusals_elsewhere(
    source: LearningSource, spec: SubstrateSpec, *, as_of: Mapping[str, int]
) -> Counter[str]:
    """Count by reason the steps that :func:`steps_of` does not yield."""
    table = source.query(
        _judged(spec) + "SELECT refusal, count(*) AS steps FROM judged WHERE refusal IS NOT NULL "  # noqa: S608
        "AND (kind <> 'model' OR trajectory_id NOT IN "
        "(SELECT trajectory_id FROM judged WHERE refusal IS NULL)) GROUP BY refusal",
        as_of=as_of,
    )
    return Counter({row["refusal"]: row["steps"] for row in table.to_pylist()})


def permitted_steps(source: LearningSource, purposes: tuple[str, ...]) -> set[tuple[str, str]]:
    """Return (tenant, step) of all that may be learned from for these purposes now."""
    table = source.query(
        "SELECT tenant_id, step_id FROM eligible_steps "  # noqa: S608 (purposes are a fixed set)
        f"WHERE list_has_all(purposes, {_list(purposes)})"
    )
    return set(zip(table["tenant_id"].to_pylist(), table["step_id"].to_pylist(), strict=True))


@dataclass(frozen=True, slots=True)
class _Seen:
    name: str
    value: float
    step_id: str | None
    observed_at: datetime


@dataclass(frozen=True, slots=True)
class Rewards:
    """The latest signals of a lake, ready to score items with."""

    spec: RewardSpec
    signals: Mapping[tuple[str, str], tuple[_Seen, ...]]
    """(tenant, trajectory, session or group) → signals, oldest first."""

    @classmethod
    def read(
        cls, source: LearningSource, spec: RewardSpec, *, as_of: Mapping[str, int]
    ) -> "Rewards":
        """Read the signals that the spec names from the view ``rewards_latest``."""
        table = source.query(
            "SELECT tenant_id, target_kind, target_id, trajectory_id, step_id, name, value, "  # noqa: S608
            f"observed_at, signal_id FROM rewards_latest WHERE list_contains({_list(tuple(spec.signals))}, name) "
            "AND value IS NOT NULL ORDER BY observed_at, signal_id",
            as_of=as_of,
        )
        signals: dict[tuple[str, str], list[_Seen]] = {}
        for row in table.to_pylist():
            place = row["trajectory_id"] or row["target_id"]
            seen = _Seen(row["name"], row["value"], row["step_id"], _utc(row["observed_at"]))
            signals.setdefault((row["tenant_id"], place), []).append(seen)
        return cls(spec=spec, signals={place: tuple(seen) for place, seen in signals.items()})

    def of(self, item: Item) -> dict[str, float]:
        """Return name → combined value of the signals that concern an item."""
        steps = set(item.step_ids)
        places = dict.fromkeys((item.trajectory_id, item.session_hint, item.group_id))
        found: dict[str, list[float]] = {}
        for place in places:
            for seen in self.signals.get((item.tenant_id, place or ""), ()):
                if seen.step_id is None or seen.step_id in steps:
                    found.setdefault(seen.name, []).append(seen.value)
        return {name: self._combine(values) for name, values in sorted(found.items())}

    def reward(self, signals: Mapping[str, float]) -> float | None:
        """Return the weighted sum, or None when a signal is missing and the spec leaves such out."""
        if self.spec.missing == "leave_out" and any(
            name not in signals for name in self.spec.signals
        ):
            return None
        return sum(weight * signals.get(name, 0.0) for name, weight in self.spec.signals.items())

    def _combine(self, values: list[float]) -> float:
        match self.spec.combine:
            case "last":
                return values[-1]
            case "mean":
                return sum(values) / len(values)
            case "minimum":
                return min(values)
            case "sum":
                return sum(values)


def _utc(value: Any) -> datetime:
    moment: datetime = value
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
