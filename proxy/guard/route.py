"""The guard of a worker: reads what a request calls, judges it, and waits for people where rules say so."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple

from proxy.clients.credentials import RawFields
from proxy.clients.shared_counters import SharedCounters
from proxy.guard.answers import NOT_SENT_BESIDE
from proxy.guard.approvals import BY_CLIENT, Approval, Approvals, Audit
from proxy.guard.calls import ReadRequest, UnreadableCallError, read_request
from proxy.guard.denied_calls import DeniedCall, DeniedCalls
from proxy.guard.elicitation import (
    ClientUser,
    Elicitations,
    ElicitedAnswer,
    McpSession,
    withdrawal,
)
from proxy.guard.operators import OperatorTerms
from proxy.guard.rules import (
    ActionRule,
    ActionRules,
    Approver,
    RequestedCall,
    Ruling,
)
from proxy.telemetry.counters import Counters
from trajectory.canonical import JsonObject
from trajectory.dialects.operations import Operation
from trajectory.errors import ConfigurationError
from trajectory.exchange import APPROVERS, ASKED_BY, ClientIdentity

_LOOK_SECONDS = 0.25
KEEP_ALIVE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class RouteRules:
    """What is guarded of a route."""

    rules: ActionRules
    operations: tuple[Operation, ...] | None = None
    """Of a plain HTTP tool; None where JSON-RPC is spoken."""
    bases: tuple[str, ...] = ()
    """Paths that its upstreams begin with."""


@dataclass(frozen=True, slots=True)
class GuardTerms:
    """What documents of kind Action say."""

    routes: Mapping[str, RouteRules]
    approvals: Approvals
    content_hash: str
    """Of the documents."""
    answers: Mapping[str, ActionRules] = field(default_factory=dict)
    """What is guarded of models' answers, by route."""
    operators: OperatorTerms | None = None
    """Who may approve over HTTP; None where nobody may."""
    audit: Audit | None = None
    """Takes what users of clients decide; None where nobody wants to know."""


class CallDecision(NamedTuple):
    """What became of one call."""

    number: int
    """Of the call in its request."""
    ruling: Ruling
    rule: ActionRule | None
    approval: Approval | None = None
    """The answer of a person, or that nobody answered."""
    claim: str = ""
    """Under what it was counted against its rule's budget; empty where it was not."""

    @property
    def goes_on(self) -> bool:
        """Whether the call is sent."""
        if self.ruling is Ruling.HOLD:
            return self.approval is not None and self.approval.status == "used"
        return self.ruling in (Ruling.ALLOW, Ruling.DRY_RUN)

    @property
    def text(self) -> str:
        """What the agent is told of a call that is not sent."""
        rule = f"rule {self.rule.name}" if self.rule else "the rules of this route"
        reason = f" {self.rule.reason}" if self.rule and self.rule.reason else ""
        approval = self.approval
        match self.ruling:
            case Ruling.LIMIT:
                said = f"{rule} has let through all calls that it allows for now."
            case Ruling.HOLD if approval is None or approval.status == "approved":
                return NOT_SENT_BESIDE
            case Ruling.HOLD if approval is not None and approval.status == "denied":
                why = f": {approval.reason}" if approval.reason else ""
                said = f"a person denied this call{why}."
            case Ruling.HOLD:
                said = f"{rule} asks a person before this call, and nobody answered in time."
            case _:
                said = f"{rule} denied this call."
        return f"Headrace: {said}{reason} It was not made; go on without it."


class Waiting(NamedTuple):
    """What a client that waits is told by, and whether it still does."""

    tell: Callable[[int], None]
    """Called at once and every ten seconds, with how often."""
    gone: Callable[[], bool]
    user: ClientUser | None = None
    """Who may be asked at the client; None where nobody may."""


class _Caller(NamedTuple):
    """Whose calls wait."""

    key_id: str
    route: str
    step_id: str
    waiting: Waiting


@dataclass(slots=True)
class _HeldCall:
    """A call that waits for a person."""

    call: RequestedCall
    rule: ActionRule
    deadline: float | None = None
    """Until when it waits; None before it is asked about."""


class CallGuard:
    """Guards the routes that documents of kind Action name."""

    def __init__(self, terms: GuardTerms, ledger: SharedCounters, counters: Counters) -> None:
        self._terms = terms
        self._ledger = ledger
        self._counters = counters
        self._waiters: dict[str, list[asyncio.Event]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._denied = DeniedCalls(terms.approvals)
        self._elicitations = Elicitations(terms.approvals)

    def guards(self, route: str) -> bool:
        """Tell whether a route is guarded."""
        return route in self._terms.routes

    def read(
        self,
        route: str,
        method: bytes,
        path: bytes,
        fields: RawFields,
        body: bytes,
        client: ClientIdentity,
    ) -> ReadRequest | None:
        """Return the calls in a request; None where it cannot be read and goes on all the same.

        Raises:
            UnreadableCallError: it must not go on.
        """
        terms = self._terms.routes[route]
        caller = RequestedCall(
            "", None, tenant=client.tenant_id, app=client.app_id, environment=client.environment
        )
        try:
            return read_request(
                method,
                path,
                fields,
                body,
                caller=caller,
                operations=terms.operations,
                bases=terms.bases,
            )
        except UnreadableCallError:
            if terms.rules.passes:
                self._counters.guard[route, "unreadable_passed"] += 1
                return None
            self._counters.guard[route, "unreadable_refused"] += 1
            raise

    def judge(self, route: str, read: ReadRequest, key_id: str) -> list[CallDecision]:
        """Return what becomes of each call, as far as no person has to be asked.

        Where one is refused none is made, and none counts against a budget.
        """
        rules = self._terms.routes[route].rules
        decisions = self._judge(rules, [one.call for one in read.calls], key_id)
        if any(map(_is_refused, decisions)):
            self._give_back(decisions)
        return decisions

    def _judge(
        self, rules: ActionRules, calls: Sequence[RequestedCall], key_id: str, place: str = ""
    ) -> list[CallDecision]:
        found: list[CallDecision] = []
        for number, call in enumerate(calls):
            judged = rules.judge(call)
            rule, ruling, claim = judged.rule, judged.ruling, ""
            if ruling is Ruling.LIMIT and rule:
                claim = self._claimed(rule, call, key_id, place)
                ruling = Ruling.ALLOW if claim else Ruling.LIMIT
            found.append(CallDecision(number, ruling, rule, claim=claim))
            found += [CallDecision(number, Ruling.DRY_RUN, one) for one in judged.watched]
        return found

    # Models' answers.

    def guards_answers(self, route: str) -> bool:
        """Tell whether the calls in a route's answers are judged."""
        return route in self._terms.answers

    def passes_answers(self, route: str) -> bool:
        """Tell whether what cannot be read of a route's answers goes on all the same."""
        return self._terms.answers[route].passes

    def unreadable(self, route: str) -> None:
        """Count what could not be read of an answer."""
        what = "passed" if self.passes_answers(route) else "refused"
        self._counters.guard[route, f"unreadable_{what}"] += 1

    async def decide_answer(
        self,
        route: str,
        calls: Sequence[RequestedCall],
        *,
        key_id: str,
        step_id: str,
        waiting: Waiting,
    ) -> list[CallDecision]:
        """Return what becomes of each call in an answer; each waits for its own person."""
        # An agent's call over a guarded route of tools is counted there once more.
        decisions = self._judge(self._terms.answers[route], calls, key_id, "answers:")
        caller = _Caller(key_id, route, step_id, waiting)
        return await self._waited(decisions, calls, caller, together=False)

    async def keep_denied(
        self, client: ClientIdentity, response_id: str, calls: Sequence[DeniedCall]
    ) -> None:
        """Keep the denied calls of a response, for the request that goes on from it."""
        await asyncio.to_thread(self._denied.keep, client.tenant_id, response_id, calls)

    def completed(self, client: ClientIdentity, body: bytes) -> bytes:
        """Return a request with the results of denied calls that its provider waits for."""
        return self._denied.completed(client.tenant_id, body)

    def _claimed(self, rule: ActionRule, call: RequestedCall, key_id: str, place: str) -> str:
        """Count a call against its rule's budget, over all workers and sessions; empty where nothing is left."""
        budget = rule.budget
        if budget is None:
            return ""
        who = {"key": key_id, "tenant": call.tenant, "tool": f"{call.tenant}:{call.tool}"}[
            budget.per
        ]
        who = blake2b(who.encode(), digest_size=12).hexdigest()
        now = time.time()
        window = int(now) // budget.seconds
        name = f"action:{place}{rule.name}:{budget.per}:{who}:{window}"
        is_left = self._ledger.claim(name, budget.calls, (window + 1) * budget.seconds)
        return name if is_left else ""

    def _give_back(self, decisions: Sequence[CallDecision]) -> None:
        """Take calls off the budgets that they were counted against: they are not made."""
        for one in decisions:
            if one.claim:
                self._ledger.give_back(one.claim)

    async def ask(
        self,
        route: str,
        read: ReadRequest,
        decisions: Sequence[CallDecision],
        *,
        key_id: str,
        step_id: str,
        waiting: Waiting,
    ) -> list[CallDecision]:
        """Wait for people until each held call is decided; where one call is refused, none waits."""
        if any(map(_is_refused, decisions)):
            return [*decisions]
        caller = _Caller(key_id, route, step_id, waiting)
        calls = [one.call for one in read.calls]
        return await self._waited(decisions, calls, caller, together=True)

    async def _waited(
        self,
        decisions: Sequence[CallDecision],
        calls: Sequence[RequestedCall],
        caller: _Caller,
        *,
        together: bool,
    ) -> list[CallDecision]:
        """Wait for people; calls that are not made count against no budget. See :meth:`_settled`."""
        if not any(one.claim for one in decisions):
            return await self._settled(decisions, calls, caller, together=together)
        are_made = False
        try:
            settled = await self._settled(decisions, calls, caller, together=together)
            stopped = together and not all(one.goes_on for one in settled)
            are_made = not stopped and not caller.waiting.gone()
        finally:
            if not are_made:
                self._give_back(decisions)
        return settled

    async def _settled(
        self,
        decisions: Sequence[CallDecision],
        calls: Sequence[RequestedCall],
        caller: _Caller,
        *,
        together: bool,
    ) -> list[CallDecision]:
        """Wait for people; approvals are used once nothing more stands against what goes on.

        Args:
            decisions: of the rules.
            calls: all that the decisions are about.
            caller: who waits.
            together: the calls go on together or not at all; people are asked about one after the other.
        """
        found = [*decisions]
        held = {
            at: _HeldCall(calls[one.number], one.rule or ActionRule("otherwise", Ruling.HOLD))
            for at, one in enumerate(decisions)
            if one.ruling is Ruling.HOLD
        }
        waits = [*held]
        while True:
            rows = await self._decided([held[at] for at in waits], caller, together=together)
            found_now = dict(zip(waits, rows, strict=False))
            for at, row in found_now.items():
                found[at] = found[at]._replace(approval=row)
            approved = {at: row for at, row in found_now.items() if row.status == "approved"}
            stopped = together and len(approved) < len(waits)
            if not approved or stopped or caller.waiting.gone():
                return found
            names = [row.approval_id for row in approved.values()]
            if await asyncio.to_thread(self._terms.approvals.claim, *names):
                for at, row in approved.items():
                    found[at] = found[at]._replace(approval=replace(row, status="used"))
                return found
            waits = [*approved]  # another call like one of them was faster, or its time is up

    async def _decided(
        self, held: Sequence[_HeldCall], caller: _Caller, *, together: bool
    ) -> list[Approval]:
        """Return the rows of held calls; of those that go on together up to the first refusal."""
        taken: set[str] = set()
        if not together:
            return [*await asyncio.gather(*(self._answered(one, caller, taken) for one in held))]
        rows: list[Approval] = []
        for one in held:
            rows.append(await self._answered(one, caller, taken))
            if rows[-1].status != "approved":
                break
        return rows

    async def _answered(self, held: _HeldCall, caller: _Caller, taken: set[str]) -> Approval:
        """Return the row of a call once it is approved, denied or expired; or its client has gone.

        An approval is good for one call: ``taken`` are those of the calls beside it.
        """
        approvals, waiting, told = self._terms.approvals, caller.waiting, 0
        call, rule = held.call, held.rule
        if held.deadline is None:
            held.deadline = time.monotonic() + rule.seconds
        deadline = held.deadline
        user = await self._user(rule, waiting)
        asked, question = "", None
        while True:
            row = await asyncio.to_thread(
                approvals.ask,
                call,
                rule,
                key_id=caller.key_id,
                route=caller.route,
                step_id=caller.step_id,
                session="" if user is None else user.session.name,
                taken=tuple(taken),
            )
            while row.status == "pending" and time.monotonic() < deadline and not waiting.gone():
                waiting.tell(told)
                told += 1
                if user is not None and asked != row.approval_id:
                    asked = row.approval_id
                    question = self._elicitations.question(row, call, user.session)
                    if question is not None:
                        user.put(question)
                until = min(KEEP_ALIVE_SECONDS, max(0.0, deadline - time.monotonic()))
                row = await self._changed(row, until, waiting.gone)
            if row.status == "approved" and row.approval_id not in taken:
                taken.add(row.approval_id)
                break
            if row.status not in ("approved", "used"):
                break
            if waiting.gone() or time.monotonic() >= deadline:
                row = replace(row, status="expired", decided_at=None, decided_by=None, reason=None)
                break  # the answer was another call's
        is_in_vain = not row.is_by_client and not waiting.gone()
        if user is not None and question is not None and is_in_vain:
            user.put(withdrawal(question))
        return row

    # Users of MCP clients.

    async def _user(self, rule: ActionRule, waiting: Waiting) -> ClientUser | None:
        """Return who may decide at the client; None where the rule or the client says nobody."""
        user = waiting.user
        if rule.approver is not Approver.CLIENT or user is None or not user.session.name:
            return None
        can_ask = await asyncio.to_thread(self._elicitations.can_ask, user.session)
        return user if can_ask else None

    def remember(self, session: McpSession) -> None:
        """Note that a session's client can ask its user, where a rule would have it asked."""
        rules = self._terms.routes[session.route].rules.rules
        if session.name and any(rule.approver is Approver.CLIENT for rule in rules):
            self._elicitations.remember(session)

    async def take_answer(self, answer: ElicitedAnswer, session: McpSession) -> bool:
        """Let a client's user decide a call that waits; False where this session was not asked."""
        approvals, route = self._terms.approvals, session.route
        approval_id = self._elicitations.approval_of(answer.question_id, session)
        if approval_id is None:
            self._counters.guard[route, "answer_refused"] += 1
            return False
        if answer.approves is None:
            return True  # an operator may still answer
        who = f"{BY_CLIENT}{session.key_id}"
        try:
            row = await asyncio.to_thread(approvals.get, approval_id)
            if not self._lets_clients_decide(route, row.rule):
                self._counters.guard[route, "answer_refused"] += 1
                return False
            await asyncio.to_thread(
                approvals.decide,
                approval_id,
                approve=answer.approves,
                who=who,
                audit=self._terms.audit,
            )
        except ConfigurationError:
            pass  # somebody was faster, or time is up: the call has its answer
        return True

    def _lets_clients_decide(self, route: str, name: str) -> bool:
        """Tell whether the rules of today do; they may have changed since the question."""
        named = [one for one in self._terms.routes[route].rules.rules if one.name == name]
        return bool(named) and all(one.approver is Approver.CLIENT for one in named)

    async def _changed(self, row: Approval, seconds: float, gone: Callable[[], bool]) -> Approval:
        """Return a row once it has changed, or after some time."""
        event = asyncio.Event()
        self._waiters.setdefault(row.approval_id, []).append(event)
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._look())
        try:
            end = time.monotonic() + seconds
            while not event.is_set() and time.monotonic() < end and not gone():
                try:
                    await asyncio.wait_for(event.wait(), min(1.0, max(0.0, end - time.monotonic())))
                except TimeoutError:
                    continue
        finally:
            self._waiters[row.approval_id].remove(event)
            if not self._waiters[row.approval_id]:
                del self._waiters[row.approval_id]
        return await asyncio.to_thread(self._terms.approvals.get, row.approval_id)

    async def _look(self) -> None:
        """Wake calls whose rows have changed, as long as any waits."""
        while self._waiters:
            await asyncio.sleep(_LOOK_SECONDS)
            rows = await asyncio.to_thread(self._terms.approvals.list)
            pending = {row.approval_id for row in rows}
            for approval_id, events in self._waiters.items():
                if approval_id not in pending:
                    for event in events:
                        event.set()

    def signals(
        self, route: str, decisions: Sequence[CallDecision], step_id: str
    ) -> list[tuple[str, JsonObject]]:
        """Count decisions; return what the lake hears of them, each under its own name."""
        found: list[tuple[str, JsonObject]] = []
        for one in decisions:
            outcome = one.ruling.value
            if one.approval is not None:
                outcome = f"hold_{one.approval.status}"
            self._counters.guard[route, outcome] += 1
            if one.rule is None and one.ruling is Ruling.ALLOW:
                continue
            name = "otherwise" if one.rule is None else one.rule.name
            severity = 0.5 if one.rule is None else one.rule.severity.weight
            said: JsonObject = {
                "name": "guard",
                "value": severity,
                "label": one.ruling.value,
                "source_kind": "rule",
                "source": f"action:{name}",
                "source_version": self._terms.content_hash,
            }
            found.append((f"guard:{step_id}:{one.number}:{name}", said))
            if one.approval is not None:
                found.append(_answer_of(one.approval, step_id, one.number))
        return found


def _is_refused(decision: CallDecision) -> bool:
    """Whether the rules refuse a call, whatever a person says."""
    return not decision.goes_on and decision.ruling is not Ruling.HOLD


def _answer_of(approval: Approval, step_id: str, number: int) -> tuple[str, JsonObject]:
    """Return the signal that a person's answer is, or their silence."""
    answered, by_client = approval.decided_by is not None, approval.is_by_client
    asked = f"{APPROVERS}:client" if by_client else APPROVERS
    said: JsonObject = {
        "name": "approval",
        "value": float(approval.status in ("approved", "used")),
        "label": "approved" if approval.status == "used" else approval.status,
        "source_kind": "human_explicit" if answered else "rule",
        "source": asked if answered else "action:time-is-up",
    }
    if approval.reason:
        said["rationale"] = approval.reason
    if answered:
        said[ASKED_BY] = approval.step_id
    return f"approval:{approval.approval_id}:{step_id}:{number}", said
