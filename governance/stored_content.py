"""What the lake already holds: asked before rows are made, so that content is stored once."""

from collections.abc import Collection, Iterable
from datetime import date, datetime
from typing import NamedTuple, Protocol

from governance.consent import AWAITS_ANSWER, withheld_in
from governance.records import GovernanceRecord, GovernedBatch
from governance.redact.report import NamePart, name_parts_in
from trajectory.assembly.assembler import SHADOW
from trajectory.assembly.placer import STANDS_ON
from trajectory.canonical import JsonObject
from trajectory.message import Message, OpaquePart
from trajectory.step import Step


class StepContent(NamedTuple):
    """What a step says, so that another one that says it again can be told."""

    trajectory_id: str
    output_message_id: str
    context_message_ids: tuple[str, ...]
    """Of the whole conversation."""


class StoredText(NamedTuple):
    """A stored row's texts in a message's shape."""

    table: str
    """messages, steps, harnesses or signals."""
    name: str
    event_date: date
    message: Message
    """For other tables a message of one opaque part with the values by column."""
    step_ids: tuple[str, ...]
    """The steps of the trajectory that name it themselves."""


class StoredTrajectory(NamedTuple):
    """What is stored of a trajectory."""

    texts: tuple[StoredText, ...] = ()
    tokens: tuple[tuple[str, date], ...] = ()
    """Steps whose exact tokens are stored, with their days."""


class UnansweredCall(NamedTuple):
    """A held or stored call of whose end user nobody could be asked."""

    exchange_id: str
    started_at: datetime
    is_given_up: bool
    """Its content is dropped, so that it is never judged again."""


class LedgerLine(NamedTuple):
    """Where an exchange ended."""

    disposition: str
    """As in the ledger; ``dropped`` where it was quarantined and its content is given up."""
    step_id: str | None


class KnownContent(Protocol):
    """Answers which of some ids are stored; the lakehouse ships the durable implementation."""

    def known_messages(self, tenant_id: str, message_ids: Collection[str]) -> set[str]:
        """Return those of ``message_ids`` that are in the table ``messages`` of this tenant."""
        ...

    def known_harnesses(self, tenant_id: str, harness_ids: Collection[str]) -> set[str]:
        """Return those of ``harness_ids`` that are in the table ``harnesses`` of this tenant."""
        ...

    def known_steps(self, tenant_id: str, step_ids: Collection[str]) -> set[str]:
        """Return those of ``step_ids`` that are in the table ``steps`` of this tenant."""
        ...

    def known_trajectories(self, tenant_id: str, trajectory_ids: Collection[str]) -> set[str]:
        """Return those of ``trajectory_ids`` that have a step in this tenant's table ``steps``."""
        ...

    def known_signals(self, tenant_id: str, signal_ids: Collection[str]) -> set[str]:
        """Return those of ``signal_ids`` that this tenant's table ``signals`` holds."""
        ...

    def trajectories_of(self, tenant_id: str, names: Collection[str]) -> dict[str, set[str]]:
        """Return the trajectories that have a stored step in each of these; see :func:`names_of`."""
        ...

    def decisions(self, tenant_id: str, step_ids: Collection[str]) -> list[GovernanceRecord]:
        """Return the decision that holds for each of ``step_ids`` that is stored."""
        ...

    def decisions_in(
        self, tenant_id: str, trajectory_ids: Collection[str]
    ) -> list[GovernanceRecord]:
        """Return the decision that holds for each step of these trajectories."""
        ...

    def ledger(self, tenant_id: str, exchange_ids: Collection[str]) -> dict[str, LedgerLine]:
        """Return where these exchanges ended, by those that are in the ledger."""
        ...

    def copies(self, tenant_id: str, step_ids: Collection[str]) -> dict[str, set[str]]:
        """Return the stored steps of shadows of these steps, by those that have some."""
        ...

    def standing_on(self, tenant_id: str, step_ids: Collection[str]) -> dict[str, set[str]]:
        """Return the stored steps that took over from these, or that their agent started, by those with some."""
        ...

    def withheld(self, tenant_id: str, trajectory_ids: Collection[str]) -> dict[str, set[str]]:
        """Return the purposes that these trajectories lost for their later calls, by trajectory."""
        ...

    def unanswered(
        self, tenant_id: str, trajectory_ids: Collection[str]
    ) -> dict[str, list[UnansweredCall]]:
        """Return the calls of these trajectories that wait for the consent service, by trajectory.

        A stored one waits whose user was told late, under the name of its step.
        """
        ...

    def held(self, tenant_id: str, names: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the held calls of these steps and trajectories, by step or trajectory.

        Each stands by its step, with the exchange that is kept of it; with an empty name where it was released
        and is not judged yet.
        """
        ...

    def said_already(self, tenant_id: str, said: Collection[StepContent]) -> dict[StepContent, str]:
        """Return the first stored step that says each of these, where there is one."""
        ...

    def trajectories(
        self, tenant_id: str, trajectory_ids: Collection[str]
    ) -> dict[str, StoredTrajectory]:
        """Return the stored texts of each trajectory that has some."""
        ...

    def naming(self, tenant_id: str, names: Collection[str]) -> dict[str, set[str]]:
        """Return the stored steps that name these messages or harnesses, by message and harness."""
        ...

    def people_in(self, tenant_id: str, message_ids: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return whom messages name that were rewritten when a name was told, by message."""
        ...

    def name_parts(
        self, tenant_id: str, trajectory_ids: Collection[str]
    ) -> dict[str, tuple[NamePart, ...]]:
        """Return the parts of names that were found in trajectories, by those that have some."""
        ...


class MemoryKnownContent:
    """Remembers the batches it was shown; for tests, dry runs and policies tried by hand."""

    def __init__(self) -> None:
        """Start with nothing known."""
        self._messages: set[tuple[str, str]] = set()
        self._harnesses: set[tuple[str, str]] = set()
        self._steps: set[tuple[str, str]] = set()
        self._trajectories: set[tuple[str, str]] = set()
        self._signals: set[tuple[str, str]] = set()
        self._members: dict[tuple[str, str], set[str]] = {}
        self._decisions: dict[tuple[str, str], GovernanceRecord] = {}
        self._withheld: dict[tuple[str, str], set[str]] = {}
        self._conversations: dict[tuple[str, str], tuple[str, ...]] = {}
        self._said: dict[tuple[str, StepContent], str] = {}
        self._unanswered: dict[tuple[str, str], list[UnansweredCall]] = {}
        self._held: dict[tuple[str, str], dict[str, str]] = {}
        self._ledger: dict[tuple[str, str], LedgerLine] = {}
        self._copies: dict[tuple[str, str], set[str]] = {}
        self._standing: dict[tuple[str, str], set[str]] = {}

    def add(self, batch: GovernedBatch) -> None:
        """Remember what ``batch`` stores."""
        self._messages |= {(row.tenant_id, row.message_id) for row in batch.messages}
        self._harnesses |= {(row.tenant_id, row.harness_id) for row in batch.harnesses}
        self._steps |= {(row.tenant_id, row.step_id) for row in batch.steps}
        self._trajectories |= {(row.tenant_id, row.trajectory_id) for row in batch.steps}
        self._trajectories |= {(row.tenant_id, row.trajectory_id) for row in batch.corrections}
        self._signals |= {(row.tenant_id, row.signal_id) for row in batch.signals}
        self._decisions |= {(row.tenant_id, row.step_id): row for row in batch.governance}
        for step in batch.steps:
            self._add_said(step)
            for name in names_of(step):
                members = self._members.setdefault((step.tenant_id, name), set())
                members.add(step.trajectory_id)
        for line in batch.exchanges:
            judged = LedgerLine(line.disposition, line.step_id)
            self._ledger[line.tenant_id, line.exchange_id] = judged
        for link in batch.links:
            place = (link.tenant_id, link.from_step_id)
            if link.kind == SHADOW:
                self._copies.setdefault(place, set()).add(link.to_step_id)
            elif link.kind in STANDS_ON:
                self._standing.setdefault(place, set()).add(link.to_step_id)
        for case in batch.quarantine:
            if case.step_id is not None and case.trajectory_id is not None:
                for name in (case.step_id, case.trajectory_id):
                    calls = self._held.setdefault((case.tenant_id, name), {})
                    calls[case.step_id] = case.part_of or case.exchange_id
            if case.reason == AWAITS_ANSWER and case.trajectory_id is not None:
                one = UnansweredCall(case.exchange_id, case.started_at, is_given_up=False)
                self._unanswered.setdefault((case.tenant_id, case.trajectory_id), []).append(one)
        for row in batch.governance:
            if found := withheld_in(row.reasons):
                self._withheld.setdefault((row.tenant_id, row.trajectory_id), set()).update(found)

    def known_messages(self, tenant_id: str, message_ids: Collection[str]) -> set[str]:
        """See :class:`KnownContent`."""
        return {name for name in message_ids if (tenant_id, name) in self._messages}

    def known_harnesses(self, tenant_id: str, harness_ids: Collection[str]) -> set[str]:
        """See :class:`KnownContent`."""
        return {name for name in harness_ids if (tenant_id, name) in self._harnesses}

    def known_steps(self, tenant_id: str, step_ids: Collection[str]) -> set[str]:
        """See :class:`KnownContent`."""
        return {name for name in step_ids if (tenant_id, name) in self._steps}

    def known_trajectories(self, tenant_id: str, trajectory_ids: Collection[str]) -> set[str]:
        """See :class:`KnownContent`."""
        return {name for name in trajectory_ids if (tenant_id, name) in self._trajectories}

    def known_signals(self, tenant_id: str, signal_ids: Collection[str]) -> set[str]:
        """See :class:`KnownContent`."""
        return {name for name in signal_ids if (tenant_id, name) in self._signals}

    def trajectories_of(self, tenant_id: str, names: Collection[str]) -> dict[str, set[str]]:
        """See :class:`KnownContent`."""
        found = {name: self._members.get((tenant_id, name)) for name in names}
        return {name: {*trajectories} for name, trajectories in found.items() if trajectories}

    def decisions(self, tenant_id: str, step_ids: Collection[str]) -> list[GovernanceRecord]:
        """See :class:`KnownContent`."""
        found = (self._decisions.get((tenant_id, name)) for name in sorted(step_ids))
        return [row for row in found if row is not None]

    def decisions_in(
        self, tenant_id: str, trajectory_ids: Collection[str]
    ) -> list[GovernanceRecord]:
        """See :class:`KnownContent`."""
        steps = [
            row.step_id
            for row in self._decisions.values()
            if row.trajectory_id in trajectory_ids and not is_about_feedback(row)
        ]
        return self.decisions(tenant_id, steps)

    def ledger(self, tenant_id: str, exchange_ids: Collection[str]) -> dict[str, LedgerLine]:
        """See :class:`KnownContent`."""
        found = {name: self._ledger.get((tenant_id, name)) for name in exchange_ids}
        return {name: line for name, line in found.items() if line is not None}

    def copies(self, tenant_id: str, step_ids: Collection[str]) -> dict[str, set[str]]:
        """See :class:`KnownContent`."""
        found = {name: self._copies.get((tenant_id, name)) for name in step_ids}
        return {name: {*copies} for name, copies in found.items() if copies}

    def standing_on(self, tenant_id: str, step_ids: Collection[str]) -> dict[str, set[str]]:
        """See :class:`KnownContent`."""
        found = {name: self._standing.get((tenant_id, name)) for name in step_ids}
        return {name: {*steps} for name, steps in found.items() if steps}

    def withheld(self, tenant_id: str, trajectory_ids: Collection[str]) -> dict[str, set[str]]:
        """See :class:`KnownContent`."""
        found = {name: self._withheld.get((tenant_id, name)) for name in trajectory_ids}
        return {name: {*purposes} for name, purposes in found.items() if purposes}

    def unanswered(
        self, tenant_id: str, trajectory_ids: Collection[str]
    ) -> dict[str, list[UnansweredCall]]:
        """See :class:`KnownContent`; nothing is released here."""
        found = {name: [*self._unanswered.get((tenant_id, name), ())] for name in trajectory_ids}
        for row in self._decisions.values():
            if row.tenant_id == tenant_id and row.trajectory_id in found and row.awaits_answer:
                one = UnansweredCall(row.step_id, row.started_at, is_given_up=False)
                found[row.trajectory_id].append(one)
        return {name: calls for name, calls in found.items() if calls}

    def held(self, tenant_id: str, names: Collection[str]) -> dict[str, dict[str, str]]:
        """See :class:`KnownContent`; nothing is released here."""
        found = {name: self._held.get((tenant_id, name)) for name in names}
        return {name: {**calls} for name, calls in found.items() if calls}

    def said_already(self, tenant_id: str, said: Collection[StepContent]) -> dict[StepContent, str]:
        """See :class:`KnownContent`."""
        found = {one: self._said.get((tenant_id, one)) for one in said}
        return {one: step for one, step in found.items() if step is not None}

    def _add_said(self, step: Step) -> None:
        before = self._conversations.get((step.tenant_id, step.parent_step_id or ""), ())
        context = (*before[: step.context_keep], *step.context_message_ids)
        answer = step.output_message_id
        whole = context if answer is None else (*context, answer)
        self._conversations[step.tenant_id, step.step_id] = whole
        if answer is not None and step.role_in_graph != "discarded":
            said = StepContent(step.trajectory_id, answer, context)
            self._said.setdefault((step.tenant_id, said), step.step_id)

    def trajectories(
        self, tenant_id: str, trajectory_ids: Collection[str]
    ) -> dict[str, StoredTrajectory]:
        """See :class:`KnownContent`; of texts nothing is remembered here."""
        del tenant_id, trajectory_ids
        return {}

    def naming(self, tenant_id: str, names: Collection[str]) -> dict[str, set[str]]:
        """See :class:`KnownContent`; of texts nothing is remembered here."""
        del tenant_id, names
        return {}

    def people_in(self, tenant_id: str, message_ids: Collection[str]) -> dict[str, tuple[str, ...]]:
        """See :class:`KnownContent`; nothing is rewritten here."""
        del tenant_id, message_ids
        return {}

    def name_parts(
        self, tenant_id: str, trajectory_ids: Collection[str]
    ) -> dict[str, tuple[NamePart, ...]]:
        """See :class:`KnownContent`."""
        return name_parts_of_reports(
            (row.trajectory_id, row.redaction_report)
            for row in self._decisions.values()
            if row.tenant_id == tenant_id and row.trajectory_id in trajectory_ids
        )


def names_of(step: Step) -> tuple[str, ...]:
    """Return what feedback may name to be about a step: its session, group, response, exchange, and itself."""
    names = (getattr(step, column) for column in NAMES_OF_STEPS)
    return tuple(name for name in names if name is not None)


def is_about_feedback(row: GovernanceRecord) -> bool:
    """Whether a decision is about a piece of feedback: it stands under that one's name, not a step's."""
    return any(reason.startswith("signal:") for reason in row.reasons[:1])


def name_parts_of_reports(reports: Iterable[tuple[str, str]]) -> dict[str, tuple[NamePart, ...]]:
    """Return the parts of names in reports, by trajectory."""
    found: dict[str, dict[NamePart, None]] = {}
    for trajectory_id, report in reports:
        for one in name_parts_in(report):
            found.setdefault(trajectory_id, {})[one] = None
    return {name: tuple(parts) for name, parts in found.items()}


NAMES_OF_STEPS = (
    "session_hint",
    "group_id",
    "trajectory_id",
    "response_id",
    "step_id",
    "exchange_id",
)
"""Columns by which feedback may name a step, or what it is in."""
STEP_TEXTS = ("tool_calls", "tool_results", "error", "ext", "sampling")
HARNESS_TEXTS = ("system_prompt", "tools", "sampling", "ext")
SIGNAL_TEXTS = ("label", "rationale")
"""Columns of steps, harnesses and signals that hold what was said."""


def as_message(values: JsonObject) -> Message:
    """Return columns of a stored row in a message's shape."""
    return Message("call", (OpaquePart(values),))
