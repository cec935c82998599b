"""From loose calls to trajectories, batch by batch, with a small memory between them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from trajectory.assembly.approvals import ApprovalLinks
from trajectory.assembly.call_facts import Fact, LinkFact, PlacementDecision
from trajectory.assembly.effects import SideEffect
from trajectory.assembly.fact_maker import FactMaker
from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.assembly.graph import DROPPED, HELPERS, SUBAGENT_CALL, StateIndex
from trajectory.assembly.placer import STANDS_ON, Placer
from trajectory.assembly.quotations import is_near
from trajectory.assembly.result import Assembly, PlacedCall, PlacedCorrection, PlacedLink
from trajectory.assembly.sessions import place_feedback
from trajectory.assembly.state import AssemblerState
from trajectory.call import Call, CallKind
from trajectory.exchange import ClientIdentity, Feedback, SpoolPosition

_GROUP_LIMIT = 20_000
"""More calls than this are not placed anew for a late one, which is then put where it fits."""
_FACTS_OF_STEPS = 4
"""How many facts of one trajectory are kept for each step that is."""


class Sender(NamedTuple):
    """Who a call came from, and where it stood in the spool."""

    client: ClientIdentity
    position: SpoolPosition


class Assembler:
    """Places calls in trajectories.

    Deterministic: the same calls, in any order, in any batches and with repetitions, are placed
    as if all had come sorted and once. A call that comes late is put to its place in time; what
    this changes about calls of earlier batches is told as corrections. ``assemble`` moves the
    state on: save it together with the position of the spool, and begin a repeated batch from
    the state that was saved. Never blocks, holds no content.
    """

    def __init__(
        self,
        key: bytes,
        state: AssemblerState | None = None,
        *,
        tool_effects: Mapping[str, SideEffect] | None = None,
    ) -> None:
        """Begin with ``state``, or with no memory.

        Args:
            key: makes all hashes and identifiers.
            state: what an earlier assembler remembered.
            tool_effects: what the operator says of tools, by pattern of their names.
        """
        self._make = Fingerprinter(key)
        self._index = StateIndex(state if state is not None else AssemblerState())
        self._facts = FactMaker(self._make, self.state.chains, tool_effects or {})
        self._placer = Placer(self._make, self._index)
        self._approvals = ApprovalLinks(self._index, self._make)
        self._latest = (0.0, "")
        self.fresh: Sequence[Fact] = ()
        """The calls of the latest batch that are to be judged, in the order of their starts."""
        self.senders: dict[str, Sender] = {}
        """Who the latest batch came from, by short hash of the tenant and of the scope."""
        self.moved: Mapping[Fact, PlacementDecision] = {}
        """Calls of earlier batches that the latest one gave another place to, or may have, with
        what was decided about them before."""
        remembered = sorted(self.state.facts.values(), key=_order)
        for fact in remembered:
            self._facts.name(fact)
            self._index.add_fact(fact)
        self._place(remembered)
        for fact in remembered:
            if not fact.stored_in and fact.placement is not None:
                fact.stored, fact.stored_in = fact.placement.skip, fact.placement.trajectory_id
        self._placer.strays, self._placer.before = [], {}

    @property
    def state(self) -> AssemblerState:
        """What to keep until the next batch; see :meth:`AssemblerState.to_json`."""
        return self._index.state

    def assemble(self, calls: Sequence[Call], feedback: Sequence[Feedback] = ()) -> Assembly:
        """Place one batch of calls, then the feedback that came with it."""
        unplaced: list[Call] = []
        fresh: list[Fact] = []
        listings: list[Fact] = []
        released: list[Fact] = []
        self.senders = {}
        shadows: list[tuple[PlacedCall, PlacedLink]] = []
        for call in sorted(_unique(calls), key=_started):
            exchange = call.exchange
            self.state.clock = exchange.started_at.timestamp()
            if (known := self.state.facts.get(exchange.first_id)) is not None:
                if exchange.released_of:  # its place is known; now it may be stored there
                    known.call = call
                    released.append(known)
                    self._from(known, call)
                continue
            if call.kind is CallKind.MODEL and exchange.shadow_of:
                shadows.append(place_shadow(self._make, call))
                continue
            fact = self._facts.fact(call)
            if fact is not None:
                self._from(fact, call)
                if exchange.released_of:
                    self._index.forget_step(fact.step_id)
            if fact is None or fact.kind == "tools":
                if not exchange.is_context:
                    unplaced.append(call)
                listings += [fact] if fact is not None else []
            elif fact.step_id not in self._index.steps:
                fresh.append(fact)
        for listing in listings:
            self._index.learn(listing)
        newest = self._latest
        for fact in fresh:
            self._index.add_fact(fact)
        fresh.sort(key=_order)
        self._place(fresh)
        late = [fact for fact in fresh if fact.order < newest]
        self._mend(fresh, late, self._misled_by(fresh, listings))
        before, self._placer.before = self._placer.before, {}
        for fact in (*fresh, *released):
            before.pop(fact, None)
        placed = [_placed(fact, self._source(fact)) for fact in (*fresh, *released)]
        judged = [fact for fact in (*fresh, *released) if not _is_context(fact)]
        self.fresh, self.moved = sorted(judged, key=_began), before
        tenants = {name: sender.client.tenant_id for name, sender in self.senders.items()}
        for item in feedback:
            tenants[self._make.short("tenant", item.client.tenant_id)] = item.client.tenant_id
        answered = self._approvals.take(feedback)
        assembly = Assembly(
            tuple(
                sorted(
                    [
                        *(one for one in placed if not one.call.exchange.is_context),
                        *(shadow for shadow, _ in shadows),
                    ],
                    key=lambda one: _started(one.call),
                )
            ),
            tuple(unplaced),
            (
                *self._links(judged, answered, tenants),
                *(link for _, link in shadows),
            ),
            place_feedback(self._index, self._make, feedback),
            tuple(self._corrections(before, tenants)),
        )
        self._index.forget_reading()
        self._let_go((*fresh, *released))
        self._approvals.forget()
        return assembly

    def _from(self, fact: Fact, call: Call) -> None:
        """Write down who a call of the batch came from."""
        sender = Sender(call.exchange.client, call.exchange.position)
        self.senders.setdefault(fact.tenant, sender)
        self.senders.setdefault(fact.scope, sender)

    def _place(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            self._placer.place(fact)
            self._latest = max(self._latest, fact.order)

    def _source(self, fact: Fact) -> str | None:
        """Return the trajectory of another session whose history the call took over, or whose agent started it."""
        placement = fact.placement
        if placement is None:
            return None
        steps = (
            self._index.steps.get(link.from_step_id)
            for link in fact.links
            if link.kind in STANDS_ON
        )
        names = (step.trajectory_id for step in steps if step is not None)
        return next((name for name in names if name != placement.trajectory_id), None)

    def _misled_by(self, fresh: Sequence[Fact], listings: Sequence[Fact]) -> set[Fact]:
        """Return dispatches placed without what is known now: results told later, late listings."""
        readers, misled = self._index.readers, set[Fact]()
        for fact in fresh:
            for call, _ in fact.told:
                misled.update(readers.get("told " + call))
        for listing in listings:
            for name, _ in listing.listed:
                misled.update(one for one in readers.get(name) if one.order > listing.order)
        return misled.difference(fresh)

    def _mend(self, fresh: Sequence[Fact], late: Sequence[Fact], misled: set[Fact]) -> None:
        """Place anew, in the order of time, whatever a late fact has to do with.

        Repeated until nothing stands before what it should have known: facts are only added. Facts
        of a settled trajectory stay: the steps that they went on from may be forgotten.
        """
        group: set[Fact] = set()
        wrong, suspects, in_order = self._movable(misled), self._movable(late), set(fresh)
        while True:
            for fact in suspects:
                later = self._movable(self._later_than(fact)) - in_order
                if later:
                    wrong |= later
                    wrong.add(fact)
            if not wrong:
                return
            group = self._movable(self._all_concerned(group | wrong))
            if len(group) > _GROUP_LIMIT:
                return
            was = {fact: fact.effect_on_others() for fact in group}
            for fact in group:
                self._placer.note(fact)
            self._take_out(group)
            self._place(sorted(group, key=_order))
            suspects = {fact for fact in group if fact.effect_on_others() != was[fact]}
            wrong, in_order = set(), group

    def _movable(self, facts: Iterable[Fact]) -> set[Fact]:
        """Return the facts that are in no settled trajectory."""
        trajectories = self.state.trajectories
        return {
            fact
            for fact in facts
            if fact.placement is None
            or (node := trajectories.get(fact.placement.trajectory_id)) is None
            or not node.settled
        }

    def _later_than(self, fact: Fact) -> set[Fact]:
        """Return the facts placed before this one was known that could have been otherwise."""
        index, order = self._index, fact.order
        found: set[Fact] = set()
        for trajectory_id in () if fact.is_quiet else fact.touched:
            node = index.state.trajectories.get(trajectory_id)
            if node is not None and not node.settled:
                found.update(
                    one
                    for one in index.touching.get(trajectory_id)
                    if one.order > order and not one.is_quiet
                )
        for name in (*self._written_by(fact), *(DROPPED + name for name in fact.reads)):
            found.update(one for one in index.readers.get(name) if one.order > order)
        node = index.state.trajectories.get(fact.trajectory_id)
        if node is not None:  # it begins this trajectory
            for name in {name for names in node.opening for name in names}:
                found.update(
                    one
                    for one in index.readers.get(name)
                    if one.order > order and is_near(node, one.started)
                )
        return found

    def _written_by(self, fact: Fact) -> Iterable[str]:
        """Return the names under which others may find a placed fact."""
        step = self._index.steps.get(fact.step_id)
        if step is not None:
            yield step.context
            if step.failure:
                yield "failed " + step.context
            if step.conversation is not None:
                yield step.conversation
            if step.response is not None:
                yield step.response
            yield from step.calls
        for name in fact.reads:
            if name.startswith(DROPPED):
                yield name.removeprefix(DROPPED)
        yield from fact.answer
        for pending in fact.pending:
            yield pending.arguments
            yield from pending.orders
        for link in fact.links:
            if link.kind == SUBAGENT_CALL:
                yield HELPERS + link.from_step_id
        for _, session in fact.sessions:
            yield session
        if fact.server is not None:
            yield fact.server
            yield "served " + fact.server

    def _all_concerned(self, facts: set[Fact]) -> set[Fact]:
        """Return the facts and all that made the trajectories that they touched, to the end."""
        found, rest = set(facts), list(facts)
        trajectories = self.state.trajectories
        seen: set[str] = set()
        while rest and len(found) <= _GROUP_LIMIT:
            for trajectory_id in set(rest.pop().touched) - seen:
                seen.add(trajectory_id)
                node = trajectories.get(trajectory_id)
                if node is None or node.settled:
                    continue
                # Who only looked at it stays, unless what is placed anew turns out otherwise.
                more = {
                    one
                    for one in self._index.touching.get(trajectory_id)
                    if one not in found and (one.above or _belongs(one, trajectory_id))
                }
                found |= more
                rest.extend(more)
        return found

    def _take_out(self, facts: set[Fact]) -> None:
        """Forget what is remembered of these facts' trajectories."""
        trajectories = self.state.trajectories
        for trajectory_id in {one for fact in facts for one in fact.touched}:
            node = trajectories.get(trajectory_id)
            if node is not None and not node.settled:
                self._index.remove_trajectory(node)
        for fact in facts:
            self._index.unwritten(fact)

    def _links(
        self, fresh: Sequence[Fact], answered: Iterable[str], tenants: Mapping[str, str]
    ) -> Iterable[PlacedLink]:
        for fact in fresh:
            yield from _links_to(fact, tenants)
        for step_id in dict.fromkeys((*(fact.step_id for fact in fresh), *answered)):
            yield from self._approvals.links(step_id, tenants)
        strays, self._placer.strays = self._placer.strays, []
        for stray in strays:
            yield _link(tenants[stray.tenant], stray.to_step_id, stray.link)

    def _corrections(
        self, before: Mapping[Fact, PlacementDecision], tenants: Mapping[str, str]
    ) -> Iterable[PlacedCorrection]:
        """Return what now holds of calls of earlier batches, where it is not what held before."""
        for fact in sorted(before, key=_began):
            placement = fact.placement
            if placement is None or fact.decision() == before[fact]:
                continue
            skip = placement.skip - fact.stored
            yield PlacedCorrection(
                tenant_id=tenants[fact.tenant],
                step_id=fact.step_id,
                started_at=datetime.fromtimestamp(fact.started, UTC),
                trajectory_id=placement.trajectory_id,
                stored_trajectory_id=fact.stored_in,
                began=fact.stored_in == fact.trajectory_id,
                step_index=placement.step_index,
                parent_step_id=placement.parent_step_id,
                branch=placement.branch,
                role_in_graph=placement.role,
                key_source=placement.key_source,
                context_keep=placement.keep,
                context_skip=skip if skip >= 0 else None,
                results_skip=_results_before(fact, placement.skip)
                - _results_before(fact, fact.stored),
                retry_of=placement.retry_of,
                duplicate_of=placement.duplicate_of,
                session_hint=placement.session_hint,
                group_id=placement.group_id,
                side_effect=placement.side_effect,
                links=(
                    *_links_to(fact, tenants),
                    *self._approvals.links(fact.step_id, tenants),
                ),
            )

    def _let_go(self, fresh: Sequence[Fact]) -> None:
        """Forget the raw calls, the facts of settled trajectories and what rested too long."""
        index, most = self._index, self.state.max_steps * _FACTS_OF_STEPS
        for fact in fresh:
            fact.call = fact.look_closer = None
        for trajectory_id in {one for fact in fresh for one in fact.touched}:
            node = self.state.trajectories.get(trajectory_id)
            if node is not None and len(index.touching.get(trajectory_id)) > most:
                node.settled = True
            if node is not None and node.settled:
                index.settle(node)
        index.forget_idle()


def _belongs(fact: Fact, trajectory_id: str) -> bool:
    return fact.placement is not None and fact.placement.trajectory_id == trajectory_id


def _order(fact: Fact) -> tuple[float, str]:
    return fact.order


def _began(fact: Fact) -> tuple[float, str]:
    return fact.started, fact.exchange


def _is_context(fact: Fact) -> bool:
    return fact.call is not None and fact.call.exchange.is_context


def _unique(calls: Iterable[Call]) -> Iterable[Call]:
    """Return each call once: the latest, or one that is to be judged rather than one that comes along."""
    found: dict[str, Call] = {}
    for call in calls:
        if call.exchange.first_id not in found or not call.exchange.is_context:
            found[call.exchange.first_id] = call
    return found.values()


def _started(call: Call) -> tuple[datetime, str]:
    return call.exchange.started_at, call.exchange.exchange_id


def _placed(fact: Fact, source: str | None) -> PlacedCall:
    call, placement = fact.call, fact.placement
    if call is None or placement is None:
        raise ValueError("a fact of this batch has its call and its place")
    fact.stored, fact.stored_in = placement.skip, placement.trajectory_id
    is_model = fact.kind == "model"
    return PlacedCall(
        call=call,
        trajectory_id=placement.trajectory_id,
        step_id=fact.step_id,
        step_index=placement.step_index,
        parent_step_id=placement.parent_step_id,
        branch=placement.branch,
        role_in_graph=placement.role,
        key_source=placement.key_source,
        context_keep=placement.keep,
        new_messages=call.context[placement.skip :] if is_model else (),
        answer_replaced=placement.is_replaced,
        retry_of=placement.retry_of,
        duplicate_of=placement.duplicate_of,
        session_hint=placement.session_hint,
        source_trajectory_id=source,
        group_id=placement.group_id,
        side_effect=placement.side_effect,
        context_is_delta=placement.is_delta,
    )


def _results_before(fact: Fact, skip: int) -> int:
    """Return how many tool results the leading messages of a context hold."""
    node = None if fact.head is None else fact.head.at(max(skip - fact.system_count, 0))
    return 0 if node is None else node.results


def _links_to(fact: Fact, tenants: Mapping[str, str]) -> Iterable[PlacedLink]:
    links = sorted(
        set(fact.links), key=lambda link: (link.recorded_at, link.kind, link.from_step_id)
    )
    return (_link(tenants[fact.tenant], fact.step_id, link) for link in links)


def _link(tenant_id: str, to_step_id: str, link: LinkFact) -> PlacedLink:
    return PlacedLink(
        tenant_id=tenant_id,
        kind=link.kind,
        from_step_id=link.from_step_id,
        to_step_id=to_step_id,
        trajectory_id=link.trajectory_id,
        recorded_at=datetime.fromtimestamp(link.recorded_at, UTC),
        key_source=link.key_source,
    )


SHADOW = "shadow"
"""Role of such a step, kind of its link, and what told where it belongs: the gateway made it."""


def place_shadow(make: Fingerprinter, call: Call) -> tuple[PlacedCall, PlacedLink]:
    """Place a shadow's answer in a trajectory of its own, linked to the step that was copied.

    Nothing goes on from it and nothing is remembered of it, so the client's trajectory is the
    same with it and without it.
    """
    exchange = call.exchange
    placed = PlacedCall(
        call=call,
        trajectory_id=make.identifier("trajectory", exchange.first_id),
        step_id=make.identifier("step", exchange.first_id),
        step_index=0,
        parent_step_id=None,
        branch=0,
        role_in_graph=SHADOW,
        key_source=SHADOW,
        context_keep=0,
        new_messages=call.context,
    )
    link = PlacedLink(
        tenant_id=exchange.client.tenant_id,
        kind=SHADOW,
        from_step_id=make.identifier("step", exchange.shadow_of),
        to_step_id=placed.step_id,
        trajectory_id=placed.trajectory_id,
        recorded_at=exchange.ended_at or exchange.started_at,
        key_source=SHADOW,
    )
    return placed, link
