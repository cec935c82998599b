"""Third pass: which redacted calls become steps.

What says nothing new goes; several attempts at one task stay. The quality gate judges the rest, and
nothing is left that leans on a step that is not stored.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from governance.identifiers import Namer
from governance.near.register import NearMatches, NearRegister, near_step
from governance.passes.calls import EndedCall, RedactedCall, duplicate, failed, follow, held
from governance.passes.drafts import Draft, base_on, draft
from governance.passes.repetitions import find_repetitions
from governance.policy.dedup import DedupSpec
from governance.quality import QualityGate, RowGate, StepFacts
from governance.quality.facts import step_facts
from governance.quality.leftovers import LeftoverCheck
from governance.records import GovernanceRecord
from governance.stored_content import KnownContent
from trajectory.errors import RetryableError
from trajectory.step import Harness, StoredMessage

NEAR_DUPLICATE = "dedup:near-duplicate"

type Reasons = dict[str, tuple[str, ...]]
"""step_id → reasons."""


class SelectedCall(NamedTuple):
    """A call that becomes a step, with its rows."""

    call: RedactedCall
    draft: Draft
    known_people: tuple[str, ...] = ()
    """Whom stored messages name that the step says again, and that were rewritten since."""


@dataclass(frozen=True, slots=True)
class SelectedBatch:
    """What the pass makes of a batch."""

    calls: tuple[SelectedCall, ...]
    ended: tuple[EndedCall, ...]
    """Repetitions, near-duplicates and what the gate held."""
    messages: tuple[StoredMessage, ...]
    """New to the lake, each once."""
    harnesses: tuple[Harness, ...]
    beaten: tuple[tuple[GovernanceRecord, str], ...]
    """The decision on a stored step, with the better step of this batch."""

    def joined(self, other: "SelectedBatch") -> "SelectedBatch":
        """Return this together with what was selected of other calls of the batch."""
        messages = {(row.tenant_id, row.message_id) for row in self.messages}
        harnesses = {(row.tenant_id, row.harness_id) for row in self.harnesses}
        more = [row for row in other.messages if (row.tenant_id, row.message_id) not in messages]
        others = [
            row for row in other.harnesses if (row.tenant_id, row.harness_id) not in harnesses
        ]
        return SelectedBatch(
            calls=(*self.calls, *other.calls),
            ended=(*self.ended, *other.ended),
            messages=(*self.messages, *more),
            harnesses=(*self.harnesses, *others),
            beaten=(*self.beaten, *other.beaten),
        )


class SelectionPass:
    """Leaves out repetitions, builds rows, asks the gate, and builds again what leaned on a held step.

    A step whose parent is not stored carries its whole conversation itself.
    """

    def __init__(
        self,
        *,
        dedup: DedupSpec,
        near: NearRegister | None,
        gate: QualityGate,
        cascade: RowGate,
        leftovers: LeftoverCheck,
        known: KnownContent,
        namer: Namer,
    ) -> None:
        """Select with ``gate``.

        Args:
            dedup: which repetitions stay.
            near: the steps that near-duplicates are compared with; None where policy asks for none.
            gate: decides over each whole batch.
            cascade: the same expectations, for steps rebuilt because their parent was held.
            leftovers: the second pass over redacted text.
            known: what the lake already holds.
            namer: names content.
        """
        self._dedup = dedup
        self._near = near
        self._gate = gate
        self._cascade = cascade
        self._leftovers = leftovers
        self._known = known
        self._namer = namer

    def select(self, calls: Sequence[RedactedCall]) -> SelectedBatch:
        """Return what becomes steps.

        When the gate holds a step that others repeat, the first repetition stands in for it.
        """
        remaining = {one.step_id: one for one in calls}
        ended: list[EndedCall] = []
        while True:
            repeated = find_repetitions(self._dedup, list(remaining.values()), self._known)
            repeats = {one.call.step_id: one.original for one in repeated}
            first = [one for one in remaining.values() if one.step_id not in repeats]
            near = self._near_duplicates(first)
            chosen = [one for one in first if one.step_id not in near.left_out]
            run = self._run(chosen, repeats)
            ended += [
                held(remaining.pop(step_id), "quality", why) for step_id, why in run.held.items()
            ]
            originals = {*repeats.values(), *(match.kept_id for match in near.left_out.values())}
            if not any(follow(repeats, original) in run.held for original in originals):
                break
        ended += [duplicate(one.call, one.reason, repeats=one.original) for one in repeated]
        ended += [
            duplicate(remaining[step_id], NEAR_DUPLICATE, near_to=match.kept_id)
            for step_id, match in near.left_out.items()
        ]
        drafts = [run.drafts[one.step_id] for one in chosen if one.step_id in run.drafts]
        messages = self._new_messages(drafts)
        people = self._known_people(drafts, messages)
        kept = tuple(
            SelectedCall(remaining[one.step.step_id], one, _named_in(one, people)) for one in drafts
        )
        return SelectedBatch(
            calls=kept,
            ended=tuple(ended),
            messages=messages,
            harnesses=self._new_harnesses(drafts),
            beaten=self._beaten(near, kept),
        )

    def _run(self, calls: Sequence[RedactedCall], repeats: Mapping[str, str]) -> "_GatedDrafts":
        """Build the rows of calls and ask the gate, until nothing leans on what was held."""
        run = _GatedDrafts(calls, repeats, self._known_parents(calls, repeats), self._namer)
        run.build(list(run.calls))
        while failures := self._failures(self._gate, run, list(run.drafts)):
            changed = run.hold(failures)
            while changed:
                run.build(changed)
                changed = run.hold(self._failures(self._cascade, run, changed))
        return run

    def _failures(self, gate: QualityGate, run: "_GatedDrafts", step_ids: Sequence[str]) -> Reasons:
        """Return which of these steps may not be stored: by the gate, or because they broke a rule."""
        here = {row.message_id for one in run.drafts.values() for row in one.messages}
        parents = run.known_parents | run.drafts.keys()
        facts: list[StepFacts] = []
        for step_id in step_ids:
            if (one := run.drafts.get(step_id)) is None:
                continue
            try:
                facts.append(
                    step_facts(one, leftovers=self._leftovers, messages=here, parents=parents)
                )
            except Exception as error:  # noqa: BLE001 (fail closed: hold the call back)
                run.broken[step_id] = (failed(error),)
        held = _asked(gate, facts) | run.broken
        run.broken = {}
        return held

    def _known_parents(
        self, calls: Sequence[RedactedCall], repeats: Mapping[str, str]
    ) -> Collection[str]:
        here = {one.step_id for one in calls}
        asked: dict[str, set[str]] = defaultdict(set)
        for one in calls:
            if parent := one.placed.parent_step_id:
                asked[one.tenant_id] |= {follow(repeats, parent)} - here
        return {
            step
            for tenant, steps in asked.items()
            for step in self._known.known_steps(tenant, steps)
        }

    def _near_duplicates(self, calls: Sequence[RedactedCall]) -> NearMatches:
        """Return which calls say almost the same as a better one that is stored or in this batch."""
        if self._near is None:
            return NearMatches({}, {})
        steps = [step for one in calls if (step := near_step(one)) is not None]
        if not steps:
            return NearMatches({}, {})
        found = self._near.find(steps)
        tenants = {step.step_id: step.tenant_id for step in steps}
        asked: dict[str, set[str]] = defaultdict(set)
        for step_id, match in found.left_out.items():
            asked[tenants[step_id]].add(match.kept_id)
        there = set(tenants)
        for tenant, names in asked.items():
            there |= self._known.known_steps(tenant, names - there)
        # What was erased meanwhile stands for nothing.
        left_out = {name: match for name, match in found.left_out.items() if match.kept_id in there}
        return replace(found, left_out=left_out)

    def _beaten(
        self, near: NearMatches, kept: Sequence[SelectedCall]
    ) -> tuple[tuple[GovernanceRecord, str], ...]:
        """Return the decisions on stored steps that a step of this batch is better than."""
        tenants = {one.call.step_id: one.call.tenant_id for one in kept}
        return tuple(
            (row, match.kept_id)
            for name, match in near.beaten.items()
            if match.kept_id in tenants
            for row in self._known.decisions(tenants[match.kept_id], [name])
        )

    def _new_messages(self, drafts: Sequence[Draft]) -> tuple[StoredMessage, ...]:
        rows: dict[str, dict[str, StoredMessage]] = defaultdict(dict)
        for one in drafts:
            for row in one.messages:
                rows[row.tenant_id].setdefault(row.message_id, row)
        return tuple(
            row
            for tenant, found in rows.items()
            for known in [self._known.known_messages(tenant, found.keys())]
            for row in found.values()
            if row.message_id not in known
        )

    def _known_people(
        self, drafts: Sequence[Draft], new: Sequence[StoredMessage]
    ) -> dict[tuple[str, str], tuple[str, ...]]:
        """Return whom messages name that are stored already, by tenant and message."""
        fresh = {(row.tenant_id, row.message_id) for row in new}
        asked: dict[str, set[str]] = defaultdict(set)
        for one in drafts:
            for row in one.messages:
                if (row.tenant_id, row.message_id) not in fresh:
                    asked[row.tenant_id].add(row.message_id)
        return {
            (tenant, name): people
            for tenant, names in asked.items()
            for name, people in self._known.people_in(tenant, names).items()
        }

    def _new_harnesses(self, drafts: Sequence[Draft]) -> tuple[Harness, ...]:
        rows: dict[str, dict[str, Harness]] = defaultdict(dict)
        for one in drafts:
            if one.harness is not None:
                rows[one.harness.tenant_id].setdefault(one.harness.harness_id, one.harness)
        return tuple(
            row
            for tenant, found in rows.items()
            for known in [self._known.known_harnesses(tenant, found.keys())]
            for row in found.values()
            if row.harness_id not in known
        )


def _named_in(one: Draft, people: Mapping[tuple[str, str], tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(
        person for row in one.messages for person in people.get((row.tenant_id, row.message_id), ())
    )


def _asked(gate: QualityGate, facts: Sequence[StepFacts]) -> Reasons:
    """Return what the gate holds; all of it where the gate itself fails, since none was judged."""
    try:
        return {
            step_id: tuple(f"quality:{name}" for name in names)
            for step_id, names in gate.failures(facts).items()
        }
    except RetryableError:
        raise  # of the whole batch, which stays in the spool
    except Exception as error:  # noqa: BLE001 (fail closed: hold the batch back)
        reason = f"quality:gate-failed:{type(error).__name__}"
        return {one.step_id: (reason,) for one in facts}


class _GatedDrafts:
    """The drafts of one batch while the gate works on them."""

    def __init__(
        self,
        calls: Sequence[RedactedCall],
        repeats: Mapping[str, str],
        known_parents: Collection[str],
        namer: Namer,
    ) -> None:
        self.calls = {one.step_id: one for one in calls}
        self.drafts: dict[str, Draft] = {}
        self.held: Reasons = {}
        self.broken: Reasons = {}
        """Steps whose rows could not be made; held back at the next question."""
        self.known_parents = set(known_parents)
        self._repeats = repeats
        self._namer = namer

    def build(self, step_ids: Iterable[str]) -> None:
        """(Re)build drafts, parents first as the order of start times gives them."""
        for step_id in step_ids:
            try:
                self._build(self.calls[step_id])
            except Exception as error:  # noqa: BLE001 (fail closed: hold the call back)
                self.drafts.pop(step_id, None)
                self.broken[step_id] = (failed(error),)

    def _build(self, one: RedactedCall) -> None:
        parent = self._parent(one)
        stored = parent in self.known_parents
        before = self.drafts.get(parent or "")
        base = base_on(one.placed, one.clean, parent, before, stored=stored)
        without = one.admission.without
        self.drafts[one.step_id] = draft(
            one.placed, one.clean, base, without=without, namer=self._namer
        )

    def hold(self, failures: Reasons) -> list[str]:
        """Take failing steps out; return the steps that leaned on them."""
        self.held |= failures
        for step_id in failures:
            self.drafts.pop(step_id, None)
        return [
            step_id
            for step_id in self.drafts
            if (self._parent(self.calls[step_id]) or "") in failures
        ]

    def _parent(self, one: RedactedCall) -> str | None:
        parent = one.placed.parent_step_id
        return follow(self._repeats, parent) if parent is not None else None
