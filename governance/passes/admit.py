"""First pass: which calls policy lets in, before and after redaction has looked at their content."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial
from typing import NamedTuple

from governance.consent import (
    AWAITS_ANSWER,
    AWAITS_CONVERSATION,
    NO_ANSWER,
    BatchConsent,
    ConsentLookup,
    ConsentRequest,
    EndUserLookup,
    NoAnswerError,
    ask_about,
)
from governance.data_classes import data_classes
from governance.passes.calls import (
    Admission,
    AdmittedCall,
    EndedCall,
    LiveCall,
    RedactedCall,
    ended_early,
    failed,
    found_in,
    held,
    held_early,
    left_out,
    people_in,
)
from governance.policy.capture import CaptureField, CaptureLevel, FailedAttempts
from governance.policy.consent import Purpose
from governance.policy.documents import PolicyBundle
from governance.policy.selector import Facts
from governance.records import counted_from
from governance.redact.pseudonym import recorded_ids, subject_id, subject_ids
from governance.retention import judge_retention, retention_of
from governance.stored_content import KnownContent, UnansweredCall
from trajectory.assembly.result import PlacedCall, PlacedCorrection
from trajectory.call import Call, CallKind
from trajectory.exchange import ExchangeOutcome, Headers


class AdmittedBatch[T: AdmittedCall](NamedTuple):
    """What a pass lets through, and what ended there."""

    calls: list[T]
    ended: list[EndedCall]


class Admissions:
    """Asks capture, consent and retention about the calls of one batch."""

    def __init__(
        self,
        bundle: PolicyBundle,
        consents: ConsentLookup,
        known: KnownContent,
        pseudonym_key: bytes,
        now: datetime,
        corrections: Sequence[PlacedCorrection] = (),
        *,
        live: Mapping[str, LiveCall] | None = None,
    ) -> None:
        """Judge at one moment.

        Args:
            bundle: the policy.
            consents: the registry of grants and withdrawals.
            known: what the lake already holds.
            pseudonym_key: names people.
            now: the moment of decisions.
            corrections: what the batch changes about calls of earlier ones.
            live: where shadows are judged, the calls that were copied, by the shadows' steps.
        """
        self._bundle = bundle
        self._consents = consents
        self._consent = BatchConsent(bundle.consent.spec, consents)
        self._known = known
        self._pseudonym_key = pseudonym_key
        self._now = now
        self._live = live or {}
        self._handed_on: dict[str, tuple[str, ...]] = {}
        """Whom a call concerns by what it goes on from, by its step."""
        self._joined: dict[tuple[str, str], set[str]] = defaultdict(set)
        for one in corrections:
            self._joined[one.tenant_id, one.trajectory_id].add(one.stored_trajectory_id)

    def unplaced(self, calls: Sequence[Call]) -> list[EndedCall]:
        """End the calls that belong to no trajectory: refused, without content, or not readable."""
        return [self._unplaced(call) for call in calls]

    def admit(self, placed: Sequence[PlacedCall]) -> AdmittedBatch[AdmittedCall]:
        """Admit calls before anybody looks at their content.

        What a conversation loses, by a header or with a person in it, stays away from its later calls. A session
        that stands on another one is about the people of that one, too, and what goes on from an erased conversation
        is about those who were erased with it.
        """
        result = AdmittedBatch[AdmittedCall]([], [])
        withheld = self._withheld_before(placed)
        unanswered = self._unanswered_before(placed)
        people = self._people_before(placed)
        for one in placed:
            self._hand_on(one, people)
            answer = self._admit(one, self._inherited(one, withheld))
            if isinstance(answer, AdmittedCall):
                named = (*([answer.end_user] if answer.end_user else []), *answer.named)
                began = counted_from(one.call.exchange.started_at, self._now)
                people[_conversation(one)].append((began, named))
            if answer.admission is not None:
                withheld[_conversation(one)] = answer.admission.consent.withheld
            if isinstance(answer, AdmittedCall):
                answer = self._after_unanswered(answer, unanswered)
            elif answer.reasons == (AWAITS_ANSWER,):
                exchange = one.call.exchange
                waits = UnansweredCall(exchange.exchange_id, exchange.started_at, is_given_up=False)
                unanswered[_conversation(one)].append(waits)
            _sort(result, answer)
        return result

    def admit_again(self, calls: Sequence[RedactedCall]) -> AdmittedBatch[RedactedCall]:
        """Ask again with the people and classes of data that redaction found in the calls."""
        result = AdmittedBatch[RedactedCall]([], [])
        withheld: dict[tuple[str, str], frozenset[Purpose]] = {}
        for one in calls:
            answer = self._admit_again(one, self._inherited(one.placed, withheld))
            if answer.admission is not None:
                withheld[_conversation(one.placed)] = answer.admission.consent.withheld
            _sort(result, answer)
        return result

    def _unplaced(self, call: Call) -> EndedCall:
        if call.exchange.outcome is ExchangeOutcome.REFUSED:
            return ended_early(call, "refused")
        if call.kind is not CallKind.OPAQUE:
            return ended_early(call, "control")
        try:
            admission = self._ask(call, end_user=None)
        except Exception as error:  # noqa: BLE001 (fail closed: whatever went wrong, hold it back)
            return held_early(call, "policy", failed(error))
        if admission.kept:
            return held_early(call, "read", call.problem or "not-understood")
        return left_out(call, None, admission)

    def _admit(self, placed: PlacedCall, withheld: frozenset[Purpose]) -> AdmittedCall | EndedCall:
        call = placed.call
        if call.exchange.outcome is ExchangeOutcome.REFUSED:
            return ended_early(call, "refused", placed)
        if placed.problem is not None:
            return held_early(call, "read", placed.problem, placed)
        live, handed_on = self._live.get(placed.step_id), self._handed_on.get(placed.step_id, ())
        try:
            tenant = call.exchange.client.tenant_id
            pseudonym = partial(subject_id, self._pseudonym_key, tenant)
            ask_about(self._consents, tenant, call.people, pseudonym)
            end_user = self._end_user(call)
            admission = self._ask(
                call,
                end_user=end_user,
                subjects=(*self._named(call, subject_ids), *handed_on),
                withheld=withheld,
                trajectories=self._gone_on(placed),
                live=live,
            )
            others = live.people if live else handed_on
            named = (*self._named(call, recorded_ids), *others)
        except NoAnswerError:
            return held_early(call, "policy", AWAITS_ANSWER, placed)
        except Exception as error:  # noqa: BLE001 (fail closed: whatever went wrong, hold it back)
            return held_early(call, "policy", failed(error), placed)
        if not admission.kept:
            people = (*([end_user] if end_user else []), *named)
            return left_out(call, placed, admission, people)
        return AdmittedCall(
            placed=placed,
            admission=admission,
            end_user=end_user,
            named=named,
            withheld=withheld,
        )

    def _admit_again(
        self, one: RedactedCall, withheld: frozenset[Purpose]
    ) -> RedactedCall | EndedCall:
        if not one.clean.findings and withheld <= one.admission.consent.withheld:
            return one  # nothing was found, so the question is the one that was answered already
        try:
            one = replace(one, withheld=one.withheld | withheld)
            judged = self._with_findings(one)
        except Exception as error:  # noqa: BLE001 (fail closed: hold the call back)
            return held(one, "policy", [failed(error)])
        if not judged.admission.kept:
            return left_out(one.placed.call, one.placed, judged.admission, people_in(one))
        return judged

    def _with_findings(self, one: RedactedCall) -> RedactedCall:
        found = found_in(one.clean, one.clean.context)
        handed_on = self._handed_on.get(one.step_id, ())
        admission = self._ask(
            one.placed.call,
            end_user=one.end_user,
            subjects=(*self._named(one.placed.call, subject_ids), *found.subjects, *handed_on),
            classes=data_classes(found.report.counts),
            withheld=one.withheld,
            trajectories=self._gone_on(one.placed),
            live=self._live.get(one.step_id),
        )
        judged = replace(one, admission=admission)
        if admission.without == one.admission.without:
            return judged
        return replace(judged, clean=one.redaction.clean(one.placed.call, admission.without))

    def _ask(
        self,
        call: Call,
        *,
        end_user: str | None,
        subjects: tuple[str, ...] = (),
        classes: tuple[str, ...] = (),
        withheld: frozenset[Purpose] = frozenset(),
        trajectories: tuple[str, ...] = (),
        live: LiveCall | None = None,
    ) -> Admission:
        """Judge one call.

        Args:
            call: what is judged.
            end_user: keyed pseudonym of the person who used the application.
            subjects: keyed pseudonyms of people that the content names.
            classes: classes of what redaction found.
            withheld: what earlier requests lost for the conversation.
            trajectories: those that the call goes on.
            live: the call that this one is a copy of.
        """
        facts = facts_of(call, classes)
        # A clock that was ahead dates a call later than it can have been made.
        captured_at = min(call.exchange.started_at, self._now)
        retention = judge_retention(self._bundle.retention.spec, facts, captured_at)
        if live is not None:
            retention = retention_of(live.decision)
            subjects = (*subjects, *live.people)
            trajectories = (*trajectories, live.decision.trajectory_id)
        request = ConsentRequest(
            facts=facts,
            key_purposes=call.exchange.client.purposes,
            headers=call.exchange.request.headers,
            end_user=end_user,
            subjects=subjects,
            captured_at=None if retention.legal_hold else captured_at,
            withheld=withheld,
            trajectories=trajectories,
            allowed=call.purposes,
        )
        consent = self._consent.judge(request)
        level, without, reasons = _capture(self._bundle, call, facts)
        refusals = list(reasons) if level is CaptureLevel.METADATA else []
        if not consent.purposes:
            refusals += consent.refusals
        if retention.expired(self._now):
            reasons.append("retention:expired")
            refusals.append("retention:expired")
        return Admission(
            kept=not refusals,
            without=without,
            consent=consent,
            retention=retention,
            reasons=(*reasons, *consent.reasons, *retention.reasons),
            refusals=tuple(refusals),
        )

    def _withheld_before(
        self, calls: Sequence[PlacedCall]
    ) -> dict[tuple[str, str], frozenset[Purpose]]:
        """Return what the conversations of these calls lost before this batch."""
        return {
            (tenant, trajectory): frozenset(map(Purpose, purposes))
            for tenant, trajectories in self._conversations(calls).items()
            for trajectory, purposes in self._known.withheld(tenant, trajectories).items()
        }

    def _people_before(
        self, calls: Sequence[PlacedCall]
    ) -> dict[tuple[str, str], list[tuple[datetime, tuple[str, ...]]]]:
        """Return whom steps concern of other sessions that these calls stand on, with their times."""
        found: dict[tuple[str, str], list[tuple[datetime, tuple[str, ...]]]] = defaultdict(list)
        asked: dict[str, set[str]] = defaultdict(set)
        for one in calls:
            if one.source_trajectory_id is not None:
                asked[one.call.exchange.client.tenant_id].add(one.source_trajectory_id)
        for tenant, names in asked.items():
            for row in self._known.decisions_in(tenant, names):
                found[tenant, row.trajectory_id].append((row.counts_from, row.subjects))
        return found

    def _hand_on(
        self,
        placed: PlacedCall,
        people: Mapping[tuple[str, str], Sequence[tuple[datetime, tuple[str, ...]]]],
    ) -> None:
        """Note whom the session that a call stands on concerned before it, and with whom went what it goes on."""
        exchange = placed.call.exchange
        tenant = exchange.client.tenant_id
        before = people.get((tenant, placed.source_trajectory_id or ""), ())
        named = [one for at, some in before if at <= exchange.started_at for one in some]
        named += self._consents.erased_with(tenant, self._gone_on(placed))
        if whom := tuple(dict.fromkeys(named)):
            self._handed_on[placed.step_id] = whom

    def _unanswered_before(
        self, calls: Sequence[PlacedCall]
    ) -> dict[tuple[str, str], list[UnansweredCall]]:
        """Return the calls that wait for the consent service in the conversations of these calls.

        One that is among these is judged again now.
        """
        found: dict[tuple[str, str], list[UnansweredCall]] = defaultdict(list)
        if not isinstance(self._consents, EndUserLookup):
            return found
        again = {one.call.exchange.released_of for one in calls}
        for tenant, trajectories in self._conversations(calls).items():
            for name, waits in self._known.unanswered(tenant, trajectories).items():
                found[tenant, name] += [one for one in waits if one.exchange_id not in again]
        return found

    def _after_unanswered(
        self,
        one: AdmittedCall,
        unanswered: Mapping[tuple[str, str], Sequence[UnansweredCall]],
    ) -> AdmittedCall | EndedCall:
        """Hold a call back that comes after one of whose end user nobody could be asked.

        Where that person agreed to nothing, this call goes too, whomever it names.
        """
        began = one.placed.call.exchange.started_at
        before = {
            name: [call for call in calls if counted_from(call.started_at, self._now) < began]
            for name in self._gone_on(one.placed)
            if (calls := unanswered.get((one.tenant_id, name)))
        }
        if any(call.is_given_up for calls in before.values() for call in calls):
            reasons = (*one.admission.reasons, NO_ANSWER)
            never = replace(one.admission, kept=False, reasons=reasons, refusals=(NO_ANSWER,))
            return left_out(one.placed.call, one.placed, never, people_in(one))
        if awaits := [name for name, calls in before.items() if calls]:
            return held(one, "policy", [AWAITS_CONVERSATION], awaits)
        return one

    def _inherited(
        self, placed: PlacedCall, withheld: Mapping[tuple[str, str], frozenset[Purpose]]
    ) -> frozenset[Purpose]:
        """Return what the conversations that a call goes on have lost so far; of a copy, what its call has not."""
        tenant = placed.call.exchange.client.tenant_id
        lost = (withheld.get((tenant, name), frozenset()) for name in self._gone_on(placed))
        live = self._live.get(placed.step_id)
        beyond = set(Purpose).difference(map(Purpose, live.decision.purposes)) if live else ()
        return frozenset[Purpose]().union(*lost, beyond)

    def _conversations(self, calls: Sequence[PlacedCall]) -> dict[str, set[str]]:
        """Return the trajectories that these calls go on, by tenant."""
        asked: dict[str, set[str]] = defaultdict(set)
        for one in calls:
            asked[one.call.exchange.client.tenant_id].update(self._gone_on(one))
        return asked

    def _gone_on(self, placed: PlacedCall) -> tuple[str, ...]:
        """Return the trajectories that a call goes on: its own, one of another session that this one stands on, and
        those that steps of these were stored in.
        """
        tenant, source = placed.call.exchange.client.tenant_id, placed.source_trajectory_id
        names = [placed.trajectory_id, *([source] if source else [])]
        joined = (one for name in names for one in sorted(self._joined.get((tenant, name), ())))
        return tuple(dict.fromkeys([*names, *joined]))

    def _end_user(self, call: Call) -> str | None:
        if not call.end_user:
            return None
        tenant = call.exchange.client.tenant_id
        return subject_id(self._pseudonym_key, tenant, call.end_user)

    def _named(
        self, call: Call, names_of: Callable[[bytes, str, str], tuple[str, ...]]
    ) -> tuple[str, ...]:
        """Return the names of others, and those that the end user has beside the usual one."""
        tenant = call.exchange.client.tenant_id
        named = [
            subject for one in call.people for subject in names_of(self._pseudonym_key, tenant, one)
        ]
        named += call.subjects
        end_user = subject_id(self._pseudonym_key, tenant, call.end_user) if call.end_user else None
        return tuple(one for one in dict.fromkeys(named) if one != end_user)


def _conversation(placed: PlacedCall) -> tuple[str, str]:
    return placed.call.exchange.client.tenant_id, placed.trajectory_id


def _sort[T: AdmittedCall](result: AdmittedBatch[T], answer: T | EndedCall) -> None:
    if isinstance(answer, EndedCall):
        result.ended.append(answer)
    else:
        result.calls.append(answer)


def facts_of(call: Call, data_classes: tuple[str, ...] = ()) -> Facts:
    """Return what selectors may ask about a call."""
    client = call.exchange.client
    tools = [part.name for part in call.output.tool_calls()] if call.output else []
    if call.dispatch is not None:
        tools.append(call.dispatch.name)
    return Facts(
        tenant=client.tenant_id,
        app=client.app_id,
        environment=client.environment,
        route=call.exchange.route,
        dialect=call.dialect,
        model=call.model_served or call.model_requested or "",
        upstream=call.exchange.upstream,
        agents=agents_of(call.exchange.request.headers),
        regions=regions_of(call.exchange.request.headers, call.exchange.upstream),
        kind=call.kind.value,
        tools=tuple(tools),
        data_classes=data_classes,
    )


def failed_without_output(call: Call) -> bool:
    """Return whether the attempt gave nothing that could be used."""
    status = call.exchange.response.status if call.exchange.response else None
    broken = call.error is not None or status is None or status >= 400
    return broken and call.output is None and call.dispatch is None


def _capture(
    bundle: PolicyBundle, call: Call, facts: Facts
) -> tuple[CaptureLevel, frozenset[CaptureField], list[str]]:
    spec = bundle.capture.spec
    level, without, reasons = spec.level, set(spec.without), list[str]()
    if level is CaptureLevel.METADATA:
        reasons.append("capture:metadata-only")
    for rule in spec.matching(facts):
        without |= set(rule.without)
        reasons.append(f"capture:{rule.name}")
        if rule.level is CaptureLevel.METADATA:
            level = CaptureLevel.METADATA
    if spec.failed_attempts is FailedAttempts.METADATA and failed_without_output(call):
        level = CaptureLevel.METADATA
        reasons.append("capture:failed-attempt")
    return level, frozenset(without), reasons


_PRODUCT = re.compile(r"\s*([A-Za-z][\w.\-]{1,60})(?:/|\s|$)")
_WORD = re.compile(r"[A-Za-z0-9][\w.\-]{0,60}\Z")
_REGION = re.compile(
    r"(?<![a-z0-9])((?:us|eu|ap|sa|ca|me|af|il|mx|asia|europe|northamerica|southamerica|australia|africa)"
    r"-(?:gov-)?[a-z]{2,14}-?\d{1,2}"
    r"|(?:west|north|east|south|central)(?:europe|us\d?|india|asia)|(?:uk|france|germany|sweden|norway|"
    r"switzerland|japan|brazil|canada|australia)(?:west|north|east|south|central|southeast)(?:central)?"
    r"|eu|us)(?=[.\-:/]|$)"
)


def agents_of(headers: Headers) -> tuple[str, ...]:
    """Return ``x-headrace-agent`` and the product that the user agent names first."""
    found = [value for name, value in headers if name == "x-headrace-agent"]
    return _agents(tuple(found), tuple(value for name, value in headers if name == "user-agent"))


def regions_of(headers: Headers, upstream: str) -> tuple[str, ...]:
    """Return ``x-headrace-region`` and the cloud region that the upstream's host names."""
    found = tuple(value for name, value in headers if name == "x-headrace-region")
    return _regions(found, upstream)


@lru_cache(maxsize=1024)
def _agents(said: tuple[str, ...], user_agents: tuple[str, ...]) -> tuple[str, ...]:
    products = [_PRODUCT.match(value) for value in user_agents]
    return _words([*said, *(product[1] for product in products if product is not None)])


@lru_cache(maxsize=1024)
def _regions(said: tuple[str, ...], upstream: str) -> tuple[str, ...]:
    return _words([*map(str.lower, said), *_REGION.findall(upstream.lower())])


def _words(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value.strip() for value in values if _WORD.match(value.strip())))
