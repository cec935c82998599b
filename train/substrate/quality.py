"""The quality gate of substrates: what items must meet, and whether the newest of them drift."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import polars as pl

from governance.policy.quality import ItemColumn, QualitySpec
from governance.quality.drift import FEWEST, ITEM_NUMBERS, ColumnDrift, drift, drifted
from governance.quality.leftovers import LeftoverCheck
from governance.quality.suite import ExpectationResult, Suite
from train.errors import SubstrateRefusedError
from train.substrate.source import LearningSource, rows_by_id
from train.types import Item
from trajectory.formats.openenv import fatal_code


class ItemProperties(Protocol):
    """Properties of a substrate item that the gate checks."""

    @property
    def item(self) -> Item:
        """The item."""

    @property
    def split(self) -> str:
        """``train`` or ``holdout``."""

    @property
    def reward(self) -> float:
        """How good it was."""

    @property
    def rewarded(self) -> bool:
        """Whether that counts as a success."""


@dataclass(frozen=True, slots=True)
class ItemFacts:
    """One row of the projection; its fields are ``governance.policy.quality.ItemColumn``."""

    item_id: str
    tenant_id: str
    split: str
    key_source: str
    capture_level: str
    steps: int
    messages: int
    characters: int
    reward: float | None
    rewarded: int
    missing_messages: int
    missing_steps: int
    missing_harness: int
    answers_misplaced: int
    leftover_findings: int
    token_steps: int
    token_code: str | None

    @property
    def key(self) -> str:
        """By what a failing row is named."""
        return self.item_id


@dataclass(frozen=True, slots=True)
class SubstrateReport:
    """Findings of the gate: counts and fixed words, no content."""

    items: int
    reference: int
    """Items of the reference window."""
    expectations: tuple[ExpectationResult, ...]
    drifts: tuple[ColumnDrift, ...]
    reasons: tuple[str, ...]
    """Why the substrate may not be learned from: ``quality:reward-present×3``; empty when it may."""

    def to_json(self) -> dict[str, Any]:
        """Return what a manifest keeps of it."""
        return {
            "expectations": {one.name: one.asked for one in self.expectations},
            "drift": {
                one.column: round(one.index, 4) for one in self.drifts if one.index is not None
            },
        }


class SubstrateGate:
    """Judges substrates under one Quality policy."""

    def __init__(self, quality: QualitySpec, allow: Sequence[str] = ()) -> None:
        """Judge by ``quality``; values in ``allow`` were left in text on purpose."""
        self._quality = quality
        self._leftovers = LeftoverCheck(quality.leftovers.entities, allow)

    def require(
        self, name: str, source: LearningSource, entries: Sequence[ItemProperties]
    ) -> SubstrateReport:
        """Judge a substrate's items.

        Raises:
            SubstrateRefusedError: they fail; the text names each reason with its count.
        """
        report = self.judge(source, entries)
        if report.reasons:
            raise SubstrateRefusedError(name, report.reasons)
        return report

    def judge(
        self,
        source: LearningSource,
        entries: Sequence[ItemProperties],
        *,
        now: datetime | None = None,
    ) -> SubstrateReport:
        """Return what these items meet and what not.

        Args:
            source: the lake.
            entries: the items.
            now: the clock. Items that are dated ahead of it are no part of the newest days.
        """
        policy = self._quality.substrate
        rows = self.facts(source, entries)
        suite = Suite[ItemColumn](policy.expectations)
        failing = suite.failures(rows)
        failed = [name for names in failing.values() for name in names]
        reasons = [
            f"quality:{one.name}×{failed.count(one.name)}"
            for one in policy.expectations
            if one.name in failed
        ]
        drifts, reference = self._drift(entries, rows, now or datetime.now(UTC))
        if policy.drift is not None:
            shifted = drifted(drifts, policy.drift.most)
            reasons += [f"quality:drift:{column}" for column in shifted]
        return SubstrateReport(
            items=len(rows),
            reference=reference,
            expectations=tuple(suite.results(rows)),
            drifts=tuple(drifts),
            reasons=tuple(dict.fromkeys(reasons)),
        )

    def facts(self, source: LearningSource, entries: Sequence[ItemProperties]) -> list[ItemFacts]:
        """Return the projection of items, with what the lake holds of them now."""
        found = _found(source, [entry.item for entry in entries], self._leftovers)
        return [
            ItemFacts(
                item_id=entry.item.item_id,
                tenant_id=entry.item.tenant_id,
                split=entry.split,
                key_source=entry.item.key_source,
                capture_level=entry.item.capture_level,
                steps=len(entry.item.step_ids),
                messages=len(entry.item.message_ids),
                reward=entry.reward,
                rewarded=int(entry.rewarded),
                **row,
            )
            for entry, row in zip(entries, found, strict=True)
        ]

    def _drift(
        self, entries: Sequence[ItemProperties], rows: Sequence[ItemFacts], now: datetime
    ) -> tuple[list[ColumnDrift], int]:
        policy = self._quality.substrate.drift
        pairs = [pair for pair in zip(entries, rows, strict=True) if pair[0].item.started_at <= now]
        if policy is None or not pairs:
            return [], 0
        latest = max(entry.item.started_at for entry, _ in pairs)
        begins = latest - timedelta(days=policy.days)
        oldest = begins - timedelta(days=policy.reference_days)
        recent = [row for entry, row in pairs if entry.item.started_at > begins]
        before = [row for entry, row in pairs if oldest < entry.item.started_at <= begins]
        if min(len(recent), len(before)) < FEWEST:
            return [], len(before)
        return drift(recent, before, policy.columns, numbers=ITEM_NUMBERS), len(before)


_HARNESS = pl.col("harness_id").is_not_null()


def _found(
    source: LearningSource, items: Sequence[Item], leftovers: LeftoverCheck
) -> list[dict[str, Any]]:
    """Return for each item what the lake holds of it and what is missing, in their order."""
    names = pl.List(pl.String)
    schema = {
        "tenant_id": pl.String(),
        "harness_id": pl.String(),
        "capture_level": pl.String(),
        "trained": pl.List(pl.Int64),
        "step_ids": names,
        "message_ids": names,
    }
    rows = [tuple(getattr(item, name) for name in schema) for item in items]
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_row_index("at")
    harnesses = rows_by_id(source, "harnesses", "harness_id", (), frame["harness_id"])
    lacking = frame.filter(_HARNESS).join(harnesses, on=["tenant_id", "harness_id"], how="anti")
    joined = (
        frame.select("at", missing_harness=pl.col("at").is_in(lacking["at"].implode()).cast(int))
        .join(_of_messages(source, frame, leftovers), on="at", how="left", maintain_order="left")
        .join(_of_steps(source, frame), on="at", how="left", maintain_order="left")
    )
    return joined.drop("at").to_dicts()


def _of_messages(
    source: LearningSource, items: pl.DataFrame, leftovers: LeftoverCheck
) -> pl.DataFrame:
    named = items.select("at", "tenant_id", "trained", message_id="message_ids")
    named = named.explode("message_id").with_columns(place=pl.int_range(pl.len()).over("at"))
    said = rows_by_id(source, "messages", "message_id", ("role", "parts"), named["message_id"])
    counts = said.select(
        "tenant_id",
        "message_id",
        "role",
        characters=pl.col("parts").str.len_chars(),
        leftovers=pl.Series([leftovers.count(parts) for parts in said["parts"]], dtype=pl.Int64),
    )
    answer = pl.col("place").is_in(pl.col("trained"))
    return (
        named.join(counts, on=["tenant_id", "message_id"], how="left")
        .group_by("at")
        .agg(
            characters=pl.col("characters").sum(),
            missing_messages=pl.col("role").is_null().sum(),
            answers_misplaced=(answer & (pl.col("role") != "assistant")).sum(),
            leftover_findings=pl.col("leftovers").sum(),
        )
    )


def _of_steps(source: LearningSource, items: pl.DataFrame) -> pl.DataFrame:
    named = items.select("at", "tenant_id", "capture_level", step_id="step_ids").explode("step_id")
    stored = rows_by_id(source, "steps", "step_id", ("true AS stored",), named["step_id"])
    exact = named.filter(capture_level="tokens")["step_id"]
    columns = ("prompt_token_ids", "completion_token_ids", "logprobs")
    tokens = rows_by_id(source, "tokens", "step_id", columns, exact)
    codes = [fatal_code(*row) for row in tokens.select(columns).iter_rows()]
    judged = tokens.select(
        "tenant_id", "step_id", code=pl.Series(codes, dtype=pl.String), judged=True
    )
    return (
        named.join(stored, on=["tenant_id", "step_id"], how="left", maintain_order="left")
        .join(judged, on=["tenant_id", "step_id"], how="left", maintain_order="left")
        .group_by("at")
        .agg(
            missing_steps=pl.col("stored").is_null().sum(),
            token_steps=pl.col("judged").sum(),
            token_code=pl.col("code").drop_nulls().first(),
        )
    )
