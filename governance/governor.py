"""The governor: raw calls in their places go in, rows that may be stored come out.

Passes over lists judge a batch: admit, redact, select, identify, rows. Each returns the calls that go on
and the calls that end there; whatever cannot be judged is held back, never passed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from governance.consent import ConsentLookup
from governance.executor import InlineRedaction, RedactionExecutor
from governance.identifiers import Namer
from governance.near.register import NearRegister
from governance.passes.admit import Admissions
from governance.passes.calls import EndedCall, LiveCall, held_again
from governance.passes.feedback import FeedbackJudge
from governance.passes.identity import IdentityPass, LineageRegister, MemoryLineages
from governance.passes.late_opt_outs import LateOptOuts
from governance.passes.late_people import LatePeople
from governance.passes.redact import RedactedBatch, RedactionPass
from governance.passes.rows import RowWriter
from governance.passes.select import SelectedBatch, SelectionPass
from governance.passes.shadows import awaiting, followed, sort_copies
from governance.policy.documents import PolicyBundle
from governance.policy.retention import LegalHold
from governance.quality import QualityGate, RowGate, build_gate
from governance.quality.leftovers import LeftoverCheck
from governance.records import Disposition, GovernanceRecord, GovernedBatch
from governance.redact.trajectory import CallRedactor
from governance.stored_content import KnownContent
from trajectory.assembly.assembler import SHADOW
from trajectory.assembly.result import (
    Assembly,
    PlacedCall,
    PlacedCorrection,
    PlacedLink,
    PlacedPeople,
)
from trajectory.exchange import Exchange


def _now() -> datetime:
    return datetime.now(UTC)


def _is_on_no_hold(_: Exchange) -> bool:
    return False


def _kept(one: EndedCall, is_on_hold: Callable[[Exchange], bool]) -> EndedCall:
    """Return a call that ends here; one that was released goes back to quarantine where a legal hold keeps it."""
    is_lost = one.disposition is Disposition.LEFT_OUT or one.near_to is not None
    exchange = one.call.exchange
    return held_again(one) if is_lost and exchange.released_of and is_on_hold(exchange) else one


def _from_live(link: PlacedLink, live: LiveCall | None) -> PlacedLink:
    """Return a shadow's link, from the step under which the call that was copied is stored."""
    return link if live is None else replace(link, from_step_id=live.decision.step_id)


class _PassedCalls(NamedTuple):
    """What the passes make of calls."""

    ended: list[EndedCall]
    redacted: RedactedBatch
    selected: SelectedBatch


class Governor:
    """Judges batches under one policy; a changed policy needs a new governor.

    Promises: every exchange of a batch gives exactly one line in the ledger; a call that nobody
    granted a purpose leaves nothing but that line and the decision; an error while one call is
    judged holds back that call and no other; no string of a client is stored that has not been
    through the redactor, unless it is a fixed word, a number or a keyed hash.
    """

    def __init__(
        self,
        bundle: PolicyBundle,
        redactor: CallRedactor,
        *,
        message_key: bytes,
        pseudonym_key: bytes,
        known: KnownContent,
        consents: ConsentLookup,
        clock: Callable[[], datetime] = _now,
        gate: QualityGate | None = None,
        spread: RedactionExecutor | None = None,
        near: NearRegister | None = None,
        lineages: LineageRegister | None = None,
    ) -> None:
        """Judge under ``bundle``.

        Args:
            bundle: the policy.
            redactor: built from the bundle's Redaction document.
            message_key: names content; equal content of two tenants gets different names.
            pseudonym_key: names people.
            known: what the lake already holds.
            consents: the registry of grants and withdrawals.
            clock: the moment of decisions.
            gate: the quality gate; without one, the one that the bundle asks for.
            spread: where trajectories are redacted; without one, here. It gives the same answers
                as ``redactor``, which stays for single texts and for calls tried on their own.
            near: the steps that later ones are compared with, where policy asks for that; without
                one, an empty one in memory.
            lineages: numbers the versions of harnesses; without one, from 1 in memory.
        """
        self._bundle = bundle
        self._namer = Namer(message_key)
        self._pseudonym_key = pseudonym_key
        self._known = known
        self._consents = consents
        self._clock = clock
        wanted = bundle.dedup.spec.near_duplicates
        self._near = None if wanted is None else near or NearRegister(wanted)
        quality = bundle.quality.spec
        self._redaction = RedactionPass(
            redactor, spread or InlineRedaction(redactor), self._namer, known
        )
        self._selection = SelectionPass(
            dedup=bundle.dedup.spec,
            near=self._near,
            gate=gate or build_gate(quality),
            cascade=RowGate(quality),
            leftovers=LeftoverCheck(quality.leftovers.entities, bundle.redaction.spec.allow),
            known=known,
            namer=self._namer,
        )
        self._identity = IdentityPass(lineages or MemoryLineages(), self._namer)
        self._feedback = FeedbackJudge(bundle, redactor, self._namer, consents, known)

    @property
    def legal_holds(self) -> tuple[LegalHold, ...]:
        """The legal holds of the policy."""
        return self._bundle.retention.spec.legal_holds

    def judge(
        self, assembly: Assembly, *, is_on_hold: Callable[[Exchange], bool] = _is_on_no_hold
    ) -> GovernedBatch:
        """Return all rows that a batch adds to the lake.

        Capture, consent and retention are asked before anybody looks at a call's content. They are asked again
        with the people and the classes of data that redaction found.

        Args:
            assembly: the batch.
            is_on_hold: whether a legal hold keeps a held exchange; a call of it that was released stays held then
                where policy does not keep it.
        """
        now = self._clock()
        self._consents.refresh()
        calls = [one for one in assembly.placed if one.role_in_graph != SHADOW]
        copies = [one for one in assembly.placed if one.role_in_graph == SHADOW]
        admissions = self._admissions(now, corrections=assembly.corrections)
        late = LatePeople(
            self._bundle, self._consents, self._known, self._pseudonym_key, now, assembly
        )
        unplaced = admissions.unplaced(assembly.unplaced)
        done = self._passed(admissions, calls, now, late.ids)
        selected, redacted = done.selected, done.redacted
        ended = [_kept(one, is_on_hold) for one in (*unplaced, *done.ended)]
        writer = RowWriter(self._bundle.content_hash, now, self._namer, self._known)
        rows = writer.rows(ended, selected)
        judged = [(one.placed, one.admission) for one in ended if one.placed and one.admission]
        judged += [(one.call.placed, one.call.admission) for one in selected.calls]
        taken = late.taken(redacted.not_rewritten)
        opt_outs = LateOptOuts(
            self._known, judged, assembly.corrections, self._bundle.content_hash, now, taken
        )
        named = partial(late.named, not_rewritten=redacted.not_rewritten)
        late_decisions = tuple(map(opt_outs.obeyed, map(named, redacted.late_decisions)))
        decisions = [opt_outs.obeyed(named(row)) for row in rows.governance]
        decided = {(row.tenant_id, row.step_id) for row in (*decisions, *late_decisions)}
        told = [*map(opt_outs.obeyed, late.on_stored(decided, redacted.not_rewritten))]
        decided |= {(row.tenant_id, row.step_id) for row in told}
        told += opt_outs.on_stored(decided)
        changed = (*late_decisions, *told)
        links = list(assembly.links)
        if copies:  # after their calls, whose fate they share
            found = sort_copies(self._known, copies, rows, (*decisions, *changed))
            second = self._passed(self._admissions(now, live=found.live), found.going, now, {})
            ended += [_kept(one, is_on_hold) for one in (*found.ended, *second.ended)]
            selected = selected.joined(second.selected)
            rows = writer.rows(ended, selected)
            decisions = [
                awaiting(opt_outs.obeyed(named(row)), found.live) for row in rows.governance
            ]
            links = [_from_live(one, found.live.get(one.to_step_id)) for one in links]
        corrections = writer.corrections(assembly.corrections, rows)
        feedback = self._feedback.judge(assembly.feedback, rows, corrections, now)
        return GovernedBatch(
            exchanges=rows.exchanges,
            messages=selected.messages,
            steps=rows.steps,
            tokens=rows.tokens,
            signals=feedback.signals,
            links=writer.links(links, rows),
            harnesses=selected.harnesses,
            governance=(
                *decisions,
                *feedback.decisions,
                *told,
                *followed(self._known, changed),
            ),
            quarantine=rows.quarantine,
            corrections=corrections,
            rewrites=tuple(redacted.rewrites),
            late_decisions=late_decisions,
            awaited=late.awaited,
            answered=late.answered,
            feedback_held=feedback.held,
        )

    def told(self, people: Sequence[PlacedPeople]) -> tuple[GovernanceRecord, ...]:
        """Return new decisions on stored steps, of whose users the consent service answers by now."""
        now = self._clock()
        self._consents.refresh()
        nothing = Assembly((), (), (), (), people=tuple(people))
        late = LatePeople(
            self._bundle,
            self._consents,
            self._known,
            self._pseudonym_key,
            now,
            nothing,
            is_answer=True,
        )
        opt_outs = LateOptOuts(self._known, (), (), self._bundle.content_hash, now, late.taken({}))
        changed = [*map(opt_outs.obeyed, late.on_stored((), {}))]
        decided = {(row.tenant_id, row.step_id) for row in changed}
        changed += opt_outs.on_stored(decided)
        return (*changed, *followed(self._known, changed))

    def _admissions(
        self,
        now: datetime,
        *,
        corrections: Sequence[PlacedCorrection] = (),
        live: Mapping[str, LiveCall] | None = None,
    ) -> Admissions:
        return Admissions(
            self._bundle,
            self._consents,
            self._known,
            self._pseudonym_key,
            now,
            corrections,
            live=live,
        )

    def _passed(
        self,
        admissions: Admissions,
        placed: Sequence[PlacedCall],
        now: datetime,
        late_ids: Mapping[tuple[str, str], tuple[str, ...]],
    ) -> _PassedCalls:
        """Lead calls through the passes."""
        admitted = admissions.admit(placed)
        redacted = self._redaction.redact(admitted.calls, now, late_ids)
        readmitted = admissions.admit_again(redacted.calls)
        selected = self._identity.identify(self._selection.select(readmitted.calls))
        ended = [*admitted.ended, *redacted.ended, *readmitted.ended, *selected.ended]
        return _PassedCalls(ended, redacted, selected)

    def stored(self, batch: GovernedBatch) -> None:
        """Take note that a batch is in the lake: later steps are compared with its steps."""
        steps = {step.step_id for step in batch.steps}
        if self._near is not None and steps:
            moments = (row.decided_at for row in batch.governance if row.step_id in steps)
            self._near.keep(steps, max(moments))
