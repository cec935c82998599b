"""The governor: raw calls in their places go in, rows that may be stored come out.

Every call is judged in the same order: capture, consent and retention before anybody looks at
its content; then redaction, with its whole trajectory; consent again, with the people that were
found; repetitions; the quality gate. Whatever cannot be judged is held back, never passed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from governance.admission import admit
from governance.batch import BatchRows
from governance.consent import AsksEndUsers, BatchConsent, ConsentLookup
from governance.corrections import correct
from governance.data_classes import data_classes
from governance.executor import InPlace, RedactionRequest, Spread
from governance.feedback import FeedbackJudge
from governance.identifiers import Namer
from governance.judged import Judged, found_in
from governance.late_names import LateNames, gives_away
from governance.near.governing import NearFound, NearRegister, near_step
from governance.policy.consent import Purpose
from governance.policy.documents import PolicyBundle
from governance.quality import QualityGate, RowGate, build_gate
from governance.quality.leftovers import LeftoverCheck
from governance.records import GovernedBatch
from governance.redact.pseudonym import subject_id, subject_ids
from governance.redact.report import RedactionScope, Told
from governance.redact.trajectory import Redactor, TrajectoryRedaction
from governance.repetition import find_repetitions
from governance.selection import Selection
from governance.stored_content import KnownContent
from governance.verdicts import Clerk
from trajectory.call import Call, CallKind
from trajectory.errors import ConfigurationError, RetryableError
from trajectory.exchange import ExchangeOutcome
from trajectory.placement import Assembly, PlacedCall, PlacedLink
from trajectory.step import Link

type _Told = Mapping[tuple[str, str], tuple[Told, ...]]
"""Parts of names by tenant and trajectory."""


def _now() -> datetime:
    return datetime.now(UTC)


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
        redactor: Redactor,
        *,
        message_key: bytes,
        pseudonym_key: bytes,
        known: KnownContent,
        consents: ConsentLookup,
        clock: Callable[[], datetime] = _now,
        gate: QualityGate | None = None,
        spread: Spread | None = None,
        near: NearRegister | None = None,
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
        """
        self._bundle = bundle
        self._redactor = redactor
        self._spread = spread or InPlace(redactor)
        self._namer = Namer(message_key)
        self._pseudonym_key = pseudonym_key
        self._known = known
        self._consents = consents
        self._consent = BatchConsent(bundle.consent.spec, consents)
        self._withheld: dict[tuple[str, str], frozenset[Purpose]] = {}
        """By tenant and trajectory, what headers took away so far."""
        self._clock = clock
        quality = bundle.quality.spec
        self._selection = Selection(
            gate=gate or build_gate(quality),
            cascade=RowGate(quality),
            leftovers=LeftoverCheck(quality.leftovers.entities, bundle.redaction.spec.allow),
            known=known,
            namer=self._namer,
        )
        wanted = bundle.dedup.spec.near_duplicates
        self._near = None if wanted is None else near or NearRegister(wanted)
        self._feedback = FeedbackJudge(bundle, redactor, self._namer, consents, known)

    def judge(self, assembly: Assembly) -> GovernedBatch:
        """Return all rows that a batch adds to the lake."""
        now = self._clock()
        self._consents.refresh()
        self._consent = BatchConsent(self._bundle.consent.spec, self._consents)
        rows = BatchRows(Clerk(self._bundle.content_hash, now, self._namer))
        for call in assembly.unplaced:
            self._judge_unplaced(call, rows, now)
        self._withheld = self._withheld_before(assembly.placed)
        admitted = [one for placed in assembly.placed for one in self._admit(placed, rows, now)]
        redacted = self._redact(admitted, rows)
        self._store([one for each in redacted for one in self._reconsider(each, rows, now)], rows)
        rows.links += self._links(assembly.links, rows)
        rows.corrections += correct(assembly.corrections, rows, self._known, now)
        self._feedback.judge(assembly.feedback, rows, now)
        return rows.finish()

    def stored(self, batch: GovernedBatch) -> None:
        """Take note that a batch is in the lake: later steps are compared with its steps."""
        if self._near is not None and batch.governance:
            decided_at = max(row.decided_at for row in batch.governance)
            self._near.keep({step.step_id for step in batch.steps}, decided_at)

    def _judge_unplaced(self, call: Call, rows: BatchRows, now: datetime) -> None:
        if call.exchange.outcome is ExchangeOutcome.REFUSED:
            rows.control(call, "refused")
        elif call.kind is not CallKind.OPAQUE:
            rows.control(call, "control")
        else:
            self._hold_opaque(call, rows, now)

    def _hold_opaque(self, call: Call, rows: BatchRows, now: datetime) -> None:
        """Quarantine what nobody could read, unless nothing of it may be kept anyway."""
        try:
            admission = admit(self._bundle, self._consent, call, end_user=None, now=now)
        except Exception as error:  # noqa: BLE001 (fail closed: whatever went wrong, hold it back)
            rows.hold(call, "policy", f"error:{type(error).__name__}")
            return
        if admission.kept:
            rows.hold(call, "read", call.problem or "not-understood")
        else:
            rows.leave_out_unread(call, admission.refusals)

    def _admit(self, placed: PlacedCall, rows: BatchRows, now: datetime) -> Iterable[Judged]:
        """Yield the call when its content may be looked at, else write down why not."""
        call = placed.call
        if call.exchange.outcome is ExchangeOutcome.REFUSED:
            rows.control(call, "refused", placed)
            return
        conversation = (call.exchange.client.tenant_id, placed.trajectory_id)
        withheld = self._withheld.get(conversation, frozenset())
        try:
            end_user, named = self._end_user(call), self._named(call)
            admission = admit(
                self._bundle,
                self._consent,
                call,
                end_user=end_user,
                now=now,
                subjects=named,
                withheld=withheld,
            )
        except Exception as error:  # noqa: BLE001 (fail closed: whatever went wrong, hold it back)
            rows.hold(call, "policy", f"error:{type(error).__name__}", placed)
            return
        self._withheld[conversation] = admission.consent.withheld
        one = Judged(placed, admission, end_user, named, withheld)
        if admission.kept:
            yield one
        else:
            rows.leave_out(one)

    def _withheld_before(
        self, calls: Sequence[PlacedCall]
    ) -> dict[tuple[str, str], frozenset[Purpose]]:
        """Return what headers took away from the conversations of these calls before this batch."""
        asked: dict[str, set[str]] = defaultdict(set)
        for one in calls:
            asked[one.call.exchange.client.tenant_id].add(one.trajectory_id)
        return {
            (tenant, trajectory): frozenset(map(Purpose, purposes))
            for tenant, trajectories in asked.items()
            for trajectory, purposes in self._known.withheld(tenant, trajectories).items()
        }

    def _end_user(self, call: Call) -> str | None:
        if not call.end_user:
            return None
        tenant = call.exchange.client.tenant_id
        subject = subject_id(self._pseudonym_key, tenant, call.end_user)
        if isinstance(self._consents, AsksEndUsers):
            self._consents.ask(tenant, call.end_user, subject)
        return subject

    def _named(self, call: Call) -> tuple[str, ...]:
        """Return the names of others, and those under which the end user may be recorded too."""
        tenant = call.exchange.client.tenant_id
        named = [
            subject
            for one in (*([call.end_user] if call.end_user else []), *call.also_named)
            for subject in subject_ids(self._pseudonym_key, tenant, one)
        ]
        end_user = subject_id(self._pseudonym_key, tenant, call.end_user) if call.end_user else None
        return tuple(one for one in dict.fromkeys(named) if one != end_user)

    def _redact(self, admitted: Sequence[Judged], rows: BatchRows) -> list[Judged]:
        """Return the calls with every string redacted, in their order."""
        groups: dict[RedactionScope, list[Judged]] = defaultdict(list)
        for one in admitted:
            groups[RedactionScope(one.tenant_id, one.placed.trajectory_id)].append(one)
        told = self._told_before(admitted)
        together = self._redact_together(groups, told)
        clean: dict[str, Judged] = {}
        for scope, group in groups.items():
            for one in group:
                try:
                    redaction = together.get(scope) or self._redaction_of(scope, one, told)
                    content = redaction.clean(one.placed.call, one.admission.without)
                    clean[one.step_id] = replace(one, redaction=redaction, clean=content)
                except Exception as error:  # noqa: BLE001 (fail closed: hold the call back)
                    rows.hold_judged(one, "redact", [f"redaction:{type(error).__name__}"])
        self._tell_stored(clean, rows)
        return [clean[one.step_id] for one in admitted if one.step_id in clean]

    def _tell_stored(self, clean: dict[str, Judged], rows: BatchRows) -> None:
        """Take what calls give away from the stored rows of their trajectories; hold what that fails for."""
        groups: dict[str, dict[str, list[Judged]]] = defaultdict(lambda: defaultdict(list))
        for one in clean.values():
            groups[one.tenant_id][one.placed.trajectory_id].append(one)
        for tenant, trajectories in groups.items():
            asked = [name for name, group in trajectories.items() if any(map(gives_away, group))]
            stored = self._known.trajectories(tenant, asked) if asked else {}
            for name, texts in stored.items():
                group = trajectories[name]
                redaction = group[0].redaction
                if redaction is None:
                    raise ValueError("a call must be redacted before what it gives away is told")
                late = LateNames(self._known, self._namer, redaction)
                try:
                    rewrites, decisions = late.rewrites(texts, group, rows.clerk.now)
                except RetryableError:
                    raise
                except Exception as error:  # noqa: BLE001 (fail closed: hold the calls back)
                    for one in group:
                        rows.hold_judged(one, "redact", [f"redaction:{type(error).__name__}"])
                        del clean[one.step_id]
                else:
                    rows.rewrites += rewrites
                    rows.late_decisions += decisions

    def _redact_together(
        self, groups: Mapping[RedactionScope, Sequence[Judged]], told: _Told
    ) -> dict[RedactionScope, TrajectoryRedaction]:
        """Redact each trajectory at once; where that fails, each of its calls is tried on its own."""
        started: dict[RedactionScope, TrajectoryRedaction] = {}
        requests: list[RedactionRequest] = []
        for scope, group in groups.items():
            redaction = self._begun(scope, told)
            try:
                said = redaction.gather(one.placed.call for one in group)
            except Exception:  # noqa: BLE001, S112 (fail closed: tried, and held, call by call)
                continue
            started[scope] = redaction
            requests.append(RedactionRequest(redaction.scope, said))
        try:
            answers = self._spread.redact_all(requests)
        except ConfigurationError:  # a worker that has another policy, or none, by now
            answers = InPlace(self._redactor).redact_all(requests)
        for scope, answer in zip(list(started), answers, strict=True):
            if answer is None:
                del started[scope]
            else:
                started[scope].fill(answer)
        return started

    def _begun(self, scope: RedactionScope, told: _Told) -> TrajectoryRedaction:
        before = told.get((scope.tenant_id, scope.trajectory_id), ())
        return TrajectoryRedaction(self._redactor, self._namer, scope, before)

    def _told_before(self, admitted: Sequence[Judged]) -> _Told:
        """Return parts of names that earlier batches found, for calls that may say no more than them."""
        asked: dict[str, set[str]] = defaultdict(set)
        for one in admitted:
            placed = one.placed
            is_alone = placed.call.dispatch is not None or placed.context_is_delta
            if is_alone or (placed.step_index > 0 and placed.context_keep == 0):
                asked[one.tenant_id].add(placed.trajectory_id)
        return {
            (tenant, name): told
            for tenant, names in asked.items()
            for name, told in self._known.told(tenant, names).items()
        }

    def _redaction_of(self, scope: RedactionScope, one: Judged, told: _Told) -> TrajectoryRedaction:
        redaction = self._begun(scope, told)
        redaction.prepare([one.placed.call])
        return redaction

    def _reconsider(self, one: Judged, rows: BatchRows, now: datetime) -> Iterable[Judged]:
        """Ask again with the people and classes of data that redaction found in the call."""
        try:
            judged = self._with_findings(one, now)
        except Exception as error:  # noqa: BLE001 (fail closed: hold the call back)
            rows.hold_judged(one, "policy", [f"error:{type(error).__name__}"])
            return
        if judged.admission.kept:
            yield judged
        else:
            rows.leave_out(judged)

    def _with_findings(self, one: Judged, now: datetime) -> Judged:
        call, redaction = one.placed.call, one.redaction
        if one.clean is None or redaction is None:
            raise ValueError("a call must be redacted before it is judged by what was found in it")
        if not one.clean.findings:
            return one  # nothing was found, so the question is the one that was answered already
        found = found_in(one.clean, one.clean.context)
        admission = admit(
            self._bundle,
            self._consent,
            call,
            end_user=one.end_user,
            now=now,
            subjects=(*one.named, *found.subjects),
            data_classes=data_classes(found.report.counts),
            withheld=one.withheld,
        )
        judged = replace(one, admission=admission)
        if admission.without == one.admission.without:
            return judged
        return replace(judged, clean=redaction.clean(call, admission.without))

    def _store(self, judged: Sequence[Judged], rows: BatchRows) -> None:
        """Leave out repetitions, ask the gate, and write the rows of what it lets through.

        When the gate holds a step that others repeat, the first repetition stands in for it.
        """
        remaining = {one.step_id: one for one in judged}
        while True:
            repeated = find_repetitions(
                self._bundle.dedup.spec, list(remaining.values()), self._known
            )
            rows.replaced = {one.step_id: original for one, original, _ in repeated}
            kept = [one for one in remaining.values() if one.step_id not in rows.replaced]
            near = self._near_duplicates(kept)
            kept = [one for one in kept if one.step_id not in near.left_out]
            selected = self._selection.select(kept, rows.follow)
            for step_id, why in selected.held.items():
                rows.hold_judged(remaining.pop(step_id), "quality", why)
            originals = [original for _, original, _ in repeated]
            originals += [match.kept_id for match in near.left_out.values()]
            if not any(rows.follow(original) in selected.held for original in originals):
                break
        for one, _, reason in repeated:
            rows.repeat(one, reason)
        for step_id, match in near.left_out.items():
            rows.near(remaining[step_id], match.kept_id)
        for draft in selected.drafts:
            rows.store(remaining[draft.step.step_id], draft)
        self._beat(near, remaining, rows)
        rows.messages += selected.messages
        rows.harnesses += selected.harnesses

    def _near_duplicates(self, judged: Sequence[Judged]) -> NearFound:
        """Return which calls say almost the same as a better one that is stored or in this batch."""
        if self._near is None:
            return NearFound({}, {})
        steps = [step for one in judged if (step := near_step(one)) is not None]
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

    def _beat(self, near: NearFound, judged: Mapping[str, Judged], rows: BatchRows) -> None:
        """Decide anew on stored steps that a stored step of this batch is better than."""
        here = {step.step_id for step in rows.steps}
        for name, match in near.beaten.items():
            if match.kept_id in here:
                tenant = judged[match.kept_id].tenant_id
                for row in self._known.decisions(tenant, [name]):
                    rows.beaten(row, match.kept_id)

    def _links(self, links: Sequence[PlacedLink], rows: BatchRows) -> list[Link]:
        """Return the links between steps that are both stored."""
        stored = {step.step_id for step in rows.steps}
        asked: dict[str, set[str]] = defaultdict(set)
        for link in links:
            ends = {rows.follow(link.from_step_id), rows.follow(link.to_step_id)}
            asked[link.tenant_id] |= ends - stored - rows.not_stored
        for tenant, steps in asked.items():
            stored |= self._known.known_steps(tenant, steps)
        kept = [
            Link(
                tenant_id=link.tenant_id,
                kind=link.kind,
                from_step_id=rows.follow(link.from_step_id),
                to_step_id=rows.follow(link.to_step_id),
                trajectory_id=link.trajectory_id,
                recorded_at=link.recorded_at,
                key_source=link.key_source,
            )
            for link in links
            if {rows.follow(link.from_step_id), rows.follow(link.to_step_id)} <= stored
        ]
        return [link for link in kept if link.from_step_id != link.to_step_id]
