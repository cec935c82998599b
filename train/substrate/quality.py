"""The quality gate of substrates: what items must meet, and whether the newest of them drift."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from governance.policy.quality import ItemColumn, QualitySpec
from governance.quality.drift import FEWEST, ITEM_NUMBERS, ColumnDrift, drift, drifted
from governance.quality.leftovers import LeftoverCheck
from governance.quality.suite import ExpectationResult, Suite
from train.errors import SubstrateRefusedError
from train.substrate.items import Item
from train.substrate.source import LearningSource
from trajectory.formats.openenv import fatal_code

_MOST_IDS = 5_000

type Key = tuple[str, str]
"""(tenant_id, id)"""


class Judged(Protocol):
    """What the gate asks of an item of a substrate."""

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
    """What the gate found; counts and fixed words, no content."""

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
        self, name: str, source: LearningSource, entries: Sequence[Judged]
    ) -> SubstrateReport:
        """Judge a substrate's items.

        Raises:
            SubstrateRefusedError: they fail; the text names each reason with its count.
        """
        report = self.judge(source, entries)
        if report.reasons:
            raise SubstrateRefusedError(name, report.reasons)
        return report

    def judge(self, source: LearningSource, entries: Sequence[Judged]) -> SubstrateReport:
        """Return what these items meet and what not."""
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
        drifts, reference = self._drift(entries, rows)
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

    def facts(self, source: LearningSource, entries: Sequence[Judged]) -> list[ItemFacts]:
        """Return the projection of items, with what the lake holds of them now."""
        seen = _Seen.read(source, [entry.item for entry in entries], self._leftovers)
        return [_facts(entry, seen) for entry in entries]

    def _drift(
        self, entries: Sequence[Judged], rows: Sequence[ItemFacts]
    ) -> tuple[list[ColumnDrift], int]:
        policy = self._quality.substrate.drift
        if policy is None or not entries:
            return [], 0
        latest = max(entry.item.started_at for entry in entries)
        begins = latest - timedelta(days=policy.days)
        oldest = begins - timedelta(days=policy.reference_days)
        pairs = [*zip(entries, rows, strict=True)]
        now = [row for entry, row in pairs if entry.item.started_at > begins]
        before = [row for entry, row in pairs if oldest < entry.item.started_at <= begins]
        if min(len(now), len(before)) < FEWEST:
            return [], len(before)
        return drift(now, before, policy.columns, numbers=ITEM_NUMBERS), len(before)


class _Message(NamedTuple):
    role: str
    characters: int
    leftovers: int


class _Tokens(NamedTuple):
    code: str | None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the lake holds of some items."""

    messages: Mapping[Key, _Message]
    steps: frozenset[Key]
    harnesses: frozenset[Key]
    tokens: Mapping[Key, _Tokens]

    @classmethod
    def read(
        cls, source: LearningSource, items: Sequence[Item], leftovers: LeftoverCheck
    ) -> "_Seen":
        steps = sorted({name for item in items for name in item.step_ids})
        messages = sorted({name for item in items for name in item.message_ids})
        harnesses = sorted({item.harness_id for item in items if item.harness_id})
        exact = sorted(
            {name for item in items if item.capture_level == "tokens" for name in item.step_ids}
        )
        said = {
            (row["tenant_id"], row["message_id"]): _Message(
                row["role"], len(row["parts"]), leftovers.count(row["parts"])
            )
            for row in _rows(source, "messages", "message_id", "role, parts", messages)
        }
        columns = "prompt_token_ids, completion_token_ids, logprobs"
        tokens = {
            (row["tenant_id"], row["step_id"]): _Tokens(
                fatal_code(row["prompt_token_ids"], row["completion_token_ids"], row["logprobs"])
            )
            for row in _rows(source, "tokens", "step_id", columns, exact)
        }
        return cls(
            said,
            frozenset(_keys(source, "steps", "step_id", steps)),
            frozenset(_keys(source, "harnesses", "harness_id", harnesses)),
            tokens,
        )


def _facts(entry: Judged, seen: _Seen) -> ItemFacts:
    item = entry.item
    tenant = item.tenant_id
    found = [seen.messages.get((tenant, name)) for name in item.message_ids]
    there = [message for message in found if message is not None]
    answers = [found[place] for place in item.trained]
    tokens = [one for step in item.step_ids if (one := seen.tokens.get((tenant, step)))]
    harness = item.harness_id
    return ItemFacts(
        item_id=item.item_id,
        tenant_id=tenant,
        split=entry.split,
        key_source=item.key_source,
        capture_level=item.capture_level,
        steps=len(item.step_ids),
        messages=len(item.message_ids),
        characters=sum(message.characters for message in there),
        reward=entry.reward,
        rewarded=int(entry.rewarded),
        missing_messages=len(found) - len(there),
        missing_steps=sum((tenant, step) not in seen.steps for step in item.step_ids),
        missing_harness=int(harness is not None and (tenant, harness) not in seen.harnesses),
        answers_misplaced=sum(one is not None and one.role != "assistant" for one in answers),
        leftover_findings=sum(message.leftovers for message in there),
        token_steps=len(tokens),
        token_code=next((one.code for one in tokens if one.code is not None), None),
    )


def _keys(source: LearningSource, table: str, column: str, names: Sequence[str]) -> Iterator[Key]:
    for row in _rows(source, table, column, "", names):
        yield row["tenant_id"], row[column]


def _rows(
    source: LearningSource, table: str, column: str, more: str, names: Sequence[str]
) -> Iterator[dict[str, Any]]:
    columns = ", ".join(filter(None, ("tenant_id", column, more)))
    for start in range(0, len(names), _MOST_IDS):
        yield from source.query(
            f"SELECT {columns} FROM {table} "  # noqa: S608 - fixed names
            f"WHERE {column} IN (SELECT unnest(?::VARCHAR[]))",
            parameters=[names[start : start + _MOST_IDS]],
        ).to_pylist()
