"""Selection: which redacted calls become steps, after the gate and with nothing left hanging."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from governance.identifiers import Namer
from governance.judged import Judged
from governance.quality import QualityGate, RowGate, StepFacts
from governance.quality.facts import step_facts
from governance.quality.leftovers import LeftoverCheck
from governance.rows import Draft, base_on, draft
from governance.stored_content import KnownContent
from trajectory.errors import RetryableError
from trajectory.step import Harness, StoredMessage

type Reasons = dict[str, tuple[str, ...]]
"""step_id → reasons."""


@dataclass(frozen=True, slots=True)
class Selected:
    """What the gate let through, and what it held."""

    drafts: tuple[Draft, ...]
    held: Reasons
    """Steps that may not be stored."""
    messages: tuple[StoredMessage, ...]
    """New to the lake, each once."""
    harnesses: tuple[Harness, ...]


class Selection:
    """Builds rows, asks the gate, and builds again what leaned on a step that was held.

    A step whose parent is not stored carries its whole conversation itself.
    """

    def __init__(
        self,
        *,
        gate: QualityGate,
        cascade: RowGate,
        leftovers: LeftoverCheck,
        known: KnownContent,
        namer: Namer,
    ) -> None:
        """Select with ``gate``.

        Args:
            gate: decides over each whole batch.
            cascade: the same expectations, for steps rebuilt because their parent was held.
            leftovers: the second pass over redacted text.
            known: what the lake already holds.
            namer: names content.
        """
        self._gate = gate
        self._cascade = cascade
        self._leftovers = leftovers
        self._known = known
        self._namer = namer

    def select(self, judged: Sequence[Judged], follow: Callable[[str], str]) -> Selected:
        """Return the rows of those calls that the gate lets through, in their order."""
        run = _Run(judged, follow, self._known_parents(judged, follow), self._namer)
        run.build(list(run.judged))
        while failures := self._failures(self._gate, run, list(run.drafts)):
            changed = run.hold(failures)
            while changed:
                run.build(changed)
                changed = run.hold(self._failures(self._cascade, run, changed))
        drafts = tuple(run.drafts[step_id] for step_id in run.judged if step_id in run.drafts)
        return Selected(drafts, run.held, self._new_messages(drafts), self._new_harnesses(drafts))

    def _failures(self, gate: QualityGate, run: "_Run", step_ids: Sequence[str]) -> Reasons:
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
                run.broken[step_id] = (f"error:{type(error).__name__}",)
        held = _asked(gate, facts) | run.broken
        run.broken = {}
        return held

    def _known_parents(
        self, judged: Sequence[Judged], follow: Callable[[str], str]
    ) -> Collection[str]:
        here = {one.step_id for one in judged}
        asked: dict[str, set[str]] = defaultdict(set)
        for one in judged:
            if (
                one.placed.parent_step_id
                and (parent := follow(one.placed.parent_step_id)) not in here
            ):
                asked[one.tenant_id].add(parent)
        return {
            step
            for tenant, steps in asked.items()
            for step in self._known.known_steps(tenant, steps)
        }

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


class _Run:
    """The drafts of one batch while the gate works on them."""

    def __init__(
        self,
        judged: Sequence[Judged],
        follow: Callable[[str], str],
        known_parents: Collection[str],
        namer: Namer,
    ) -> None:
        self.judged = {one.step_id: one for one in judged}
        self.drafts: dict[str, Draft] = {}
        self.held: Reasons = {}
        self.broken: Reasons = {}
        """Steps whose rows could not be made; held back at the next question."""
        self.known_parents = set(known_parents)
        self._follow = follow
        self._namer = namer

    def build(self, step_ids: Iterable[str]) -> None:
        """(Re)build drafts, parents first as the order of start times gives them."""
        for step_id in step_ids:
            try:
                self._build(self.judged[step_id])
            except Exception as error:  # noqa: BLE001 (fail closed: hold the call back)
                self.drafts.pop(step_id, None)
                self.broken[step_id] = (f"error:{type(error).__name__}",)

    def _build(self, one: Judged) -> None:
        if one.clean is None:
            raise ValueError("a call must be redacted before its rows are made")
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
            if (self._parent(self.judged[step_id]) or "") in failures
        ]

    def _parent(self, one: Judged) -> str | None:
        parent = one.placed.parent_step_id
        return self._follow(parent) if parent is not None else None
