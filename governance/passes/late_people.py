"""Whom stored calls belong to, where a span of their trace told it after they were governed.

Each gets a decision with these people, as of now: it loses what they take away, and an erasure finds it. Nothing is
given back, not even what another was thought to have taken. What belongs to somebody who was erased meanwhile is
due for removal at once. Where the consent service does not answer about one of them, the step may not be used until
it does.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import NamedTuple

from governance.consent import (
    CONVERSATION,
    ERASED,
    ConsentLookup,
    NoAnswerError,
    ask_about,
    taken_by_people,
    withheld_in,
)
from governance.passes.calls import failed
from governance.passes.late_opt_outs import TakenLate
from governance.policy.consent import Purpose
from governance.policy.documents import PolicyBundle
from governance.records import Decision, GovernanceRecord
from governance.redact.pseudonym import recorded_ids, subject_id, subject_ids
from governance.stored_content import KnownContent
from trajectory.assembly.result import Assembly, PlacedPeople


class _Verdict(NamedTuple):
    subjects: tuple[str, ...]
    not_them: frozenset[str]
    """Keyed pseudonyms of whom the call was taken to belong to before."""
    taken: list[tuple[set[Purpose], str]]
    awaits_answer: bool
    """Of one of them the consent service does not answer."""
    has_answer: bool
    """All for whom the step waited were asked about, or it belongs to others."""

    @property
    def is_erased(self) -> bool:
        """Whether somebody of them asked to be erased."""
        return any(reason == ERASED for _, reason in self.taken)


class LatePeople:
    """The people whom one batch tells of calls that earlier ones stored."""

    def __init__(
        self,
        bundle: PolicyBundle,
        consents: ConsentLookup,
        known: KnownContent,
        pseudonym_key: bytes,
        now: datetime,
        assembly: Assembly,
        *,
        is_answer: bool = False,
    ) -> None:
        """Judge at one moment; see :class:`governance.passes.admit.Admissions`.

        Args:
            bundle: the policy.
            consents: the registry of grants and withdrawals.
            known: what the lake already holds.
            pseudonym_key: names people.
            now: the moment of decisions.
            assembly: tells the people.
            is_answer: they are all for whom the steps wait, and the consent service answers about them by now.
        """
        self._bundle = bundle
        self._is_answer = is_answer
        self._consents = consents
        self._pseudonym_key = pseudonym_key
        self._now = now
        self._moved = {
            (one.tenant_id, one.step_id): one.trajectory_id for one in assembly.corrections
        }
        # Calls of this batch are governed with their people already.
        fresh = {(one.call.exchange.client.tenant_id, one.step_id) for one in assembly.placed}
        self._told = told = _merged(assembly.people)
        self._rows = _stored(known, told.keys() - fresh)
        self._verdicts = {key: self._judge(told[key], row) for key, row in self._rows.items()}
        self._ids: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        for key, row in self._rows.items():
            people = told[key].people
            if people and not self._verdicts[key].is_erased:
                self._ids[self._place(row)] |= dict.fromkeys(people)

    @property
    def ids(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """By tenant and trajectory the ids of these people: stored texts may hold them."""
        return {place: tuple(ids) for place, ids in self._ids.items()}

    @property
    def awaited(self) -> tuple[PlacedPeople, ...]:
        """Those of whom nobody could be asked, for steps that may be used once there is an answer."""
        return tuple(
            self._told[key]
            for key, row in self._rows.items()
            if self._verdicts[key].awaits_answer and (row.keeps_content or row.awaits_answer)
        )

    @property
    def answered(self) -> tuple[tuple[str, str], ...]:
        """Tenants and steps that wait for no answer any more."""
        awaited = {(one.tenant_id, one.step_id) for one in self.awaited}
        return tuple(
            key
            for key in self._told.keys() - awaited
            if (verdict := self._verdicts.get(key)) is None or verdict.has_answer
        )

    def taken(self, not_rewritten: Mapping[tuple[str, str], str]) -> Iterator[TakenLate]:
        """Yield what the conversations of stored calls lose with these people, from the call on."""
        for row in self._rows.values():
            lost = withheld_in(self.named(row, not_rewritten).reasons) - withheld_in(row.reasons)
            if lost:
                yield TakenLate(*self._place(row), row.counts_from, lost)

    def named(
        self, row: GovernanceRecord, not_rewritten: Mapping[tuple[str, str], str]
    ) -> GovernanceRecord:
        """Return a decision with these people; the same where that changes nothing.

        Args:
            row: the decision.
            not_rewritten: trajectories whose stored texts could not be redacted anew, with the reason.
        """
        verdict = self._verdicts.get((row.tenant_id, row.step_id))
        if verdict is None:
            return row
        # What redaction found may name somebody beside whose call it is.
        wrong = frozenset[str]() if row.redaction_counts else verdict.not_them
        rest = (one for one in row.subjects if one not in wrong)
        subjects = tuple(dict.fromkeys((*verdict.subjects, *rest)))
        taken = [*verdict.taken]
        if reason := not_rewritten.get(self._place(row)):
            taken.append((set(Purpose), reason))
        left, said = {Purpose(one) for one in row.purposes}, list[str]()
        for some, reason in taken:
            lasts = reason.startswith(CONVERSATION) and reason not in row.reasons
            if left & some or lasts:
                left -= some
                said.append(reason)
        is_due = verdict.is_erased and not row.legal_hold
        before = row
        if verdict.awaits_answer:
            row = row.until_answered()
        elif verdict.has_answer:
            row = row.answered()
        if not said and {*subjects} == {*row.subjects} and not is_due and row is before:
            return row
        if not left:  # as in the order of time: later calls of the conversation may name nobody
            lost = set[Purpose]().union(*(some for some, reason in taken if reason in said))
            said += [CONVERSATION + purpose for purpose in Purpose if purpose in lost]
        return replace(
            row,
            decided_at=row.decided_again(self._now),
            policy_hash=self._bundle.content_hash,
            subjects=subjects,
            purposes=tuple(one for one in row.purposes if one in left),
            reasons=tuple(dict.fromkeys([*row.reasons, *said])),
            expires_at=self._now if is_due else row.expires_at,
        )

    def on_stored(
        self,
        decided: Collection[tuple[str, str]],
        not_rewritten: Mapping[tuple[str, str], str],
    ) -> Iterator[GovernanceRecord]:
        """Yield new decisions on stored steps, but for those that the batch decides about anyway."""
        for key, row in self._rows.items():
            named = self.named(row, not_rewritten)
            if named is not row and key not in decided:
                yield named

    def _place(self, row: GovernanceRecord) -> tuple[str, str]:
        moved = self._moved.get((row.tenant_id, row.step_id), row.trajectory_id)
        return row.tenant_id, moved

    def _judge(self, told: PlacedPeople, row: GovernanceRecord) -> _Verdict:
        key, tenant, people = self._pseudonym_key, told.tenant_id, told.people
        end_user = subject_id(key, tenant, told.end_user) if told.end_user else None
        asked = [name for one in people for name in subject_ids(key, tenant, one)]
        recorded = [name for one in people for name in recorded_ids(key, tenant, one)]
        wrong = {name for one in told.before for name in recorded_ids(key, tenant, one)}
        is_answered = True
        try:
            is_answered = self._ask(tenant, people)
            taken = taken_by_people(
                self._bundle.consent.spec,
                self._consents,
                tenant,
                end_user if is_answered else None,
                [one for one in dict.fromkeys(asked) if one != end_user or not is_answered],
                None if row.legal_hold else min(row.started_at, row.decided_at),
            )
        except Exception as error:  # noqa: BLE001 (fail closed: nobody can say what is allowed)
            taken = [(set(Purpose), failed(error))]
        subjects = tuple(dict.fromkeys([*([end_user] if end_user else []), *recorded]))
        verdict = _Verdict(
            subjects,
            frozenset(wrong),
            taken,
            awaits_answer=not is_answered,
            has_answer=is_answered and (self._is_answer or bool(told.before)),
        )
        if verdict.is_erased:  # whatever the answer would be, it goes
            return verdict._replace(awaits_answer=False, has_answer=True)
        return verdict

    def _ask(self, tenant: str, people: Sequence[str]) -> bool:
        """Ask about people; return whether it is known now what all of them agreed to."""
        named = partial(subject_id, self._pseudonym_key, tenant)
        try:
            ask_about(self._consents, tenant, people, named)
        except NoAnswerError:
            return False
        return True


def _merged(people: Sequence[PlacedPeople]) -> dict[tuple[str, str], PlacedPeople]:
    """Return whom each step belongs to, by tenant and step; several spans may tell it."""
    found: dict[tuple[str, str], PlacedPeople] = {}
    for one in people:
        key = (one.tenant_id, one.step_id)
        earlier = found.get(key, one)
        end_user = one.end_user or earlier.end_user
        ids = dict.fromkeys((*earlier.people, *one.people))
        before = dict.fromkeys((*earlier.before, *one.before))
        found[key] = replace(
            one,
            end_user=end_user,
            also_named=tuple(name for name in ids if name != end_user),
            before=tuple(name for name in before if name not in ids),
        )
    return found


def _stored(
    known: KnownContent, steps: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], GovernanceRecord]:
    """Return the decisions that hold for these steps."""
    asked: dict[str, set[str]] = defaultdict(set)
    for tenant, step in steps:
        asked[tenant].add(step)
    return {
        (tenant, row.step_id): row
        for tenant, names in asked.items()
        for row in known.decisions(tenant, names)
        # Nothing of a call that was left out is kept, so nobody is named by it.
        if row.decision != Decision.DROP or known.known_steps(tenant, [row.step_id])
    }
