"""Placing one fact after another, in the order of time: where each call belongs."""

from dataclasses import dataclass, replace

from trajectory.assembly.call_facts import Fact, LinkFact, Placement, PlacementDecision
from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.assembly.graph import SUBAGENT_CALL, StateIndex
from trajectory.assembly.nodes import ChainNode, StepNode, TrajectoryNode, lengthen, shorten
from trajectory.assembly.parents import (
    ParentQuery,
    find_asking_step,
    find_failed_attempt,
    find_parent,
    find_unseen_answer,
    settle,
)
from trajectory.assembly.quotations import Echo, EchoKind, find_echo
from trajectory.assembly.sessions import Identity, identify

SUBAGENT_RETURN = "subagent_return"
RESUMED = "prefix"
"""Kind of the link to a step of another session whose history a call took over."""
STANDS_ON = (RESUMED, SUBAGENT_CALL)
"""Kinds of links from a step of another session that may have handed on what was said there."""


@dataclass(frozen=True, slots=True)
class StrayLink:
    """A link to a step whose fact is not remembered (any more)."""

    tenant: str
    to_step_id: str
    link: LinkFact


@dataclass(frozen=True, slots=True)
class _Place:
    """What was found out about a model call before its node is made."""

    node: TrajectoryNode
    parent: StepNode | None
    key_source: str
    repeats: StepNode | None
    duplicate: StepNode | None
    resumed: StepNode | None
    """A step of another session whose history this one took over."""
    echo: Echo | None
    """What this root quotes; for a nameless one that is all that tells where it belongs."""
    caller: StepNode | None = None
    """The step of another session that started this one, as the client says."""


class Placer:
    """Places facts, each by the state that the facts before it left behind."""

    def __init__(self, make: Fingerprinter, index: StateIndex) -> None:
        self._make = make
        self._index = index
        self.strays: list[StrayLink] = []
        """Links to steps without a fact; whoever places a batch takes them."""
        self.before: dict[Fact, PlacementDecision] = {}
        """What was said of placed facts before others changed it."""

    def note(self, fact: Fact) -> None:
        """Write down what is said of a fact, before it changes."""
        self.before.setdefault(fact, fact.decision())

    def place(self, fact: Fact) -> None:
        """Decide where a fact belongs and remember it; its links are found too."""
        index = self._index
        fact.links = ()
        if fact.kind == "model" and fact.head is not None:
            self._place_model(fact, fact.head)
        elif fact.kind == "tool":
            self._place_dispatch(fact)
        index.written(fact)

    def _place_model(self, fact: Fact, head: ChainNode) -> None:
        identity = identify(self._index, fact)
        place = self._find_place(fact, head, identity)
        step = self._make_step(fact, head, identity, place)
        parent, node = place.parent, place.node
        is_delta = parent is not None and identity.previous is parent
        keep, skip = _difference(fact, head, parent, is_delta=is_delta)
        fact.placement = Placement(
            trajectory_id=node.trajectory_id,
            step_index=step.index,
            parent_step_id=step.parent_id,
            branch=node.roots if parent is None else parent.children,
            role=_role(fact, place),
            key_source=place.key_source,
            keep=keep,
            skip=skip,
            retry_of=None if place.repeats is None else place.repeats.step_id,
            duplicate_of=None if place.duplicate is None else place.duplicate.step_id,
            session_hint=fact.hint or node.hint,
            group_id=fact.group or node.group,
            is_replaced=_is_replaced(head, parent),
            is_delta=is_delta,
        )
        self._remember(fact, step, place)
        self._link(fact, place)

    def _find_place(self, fact: Fact, head: ChainNode, identity: Identity) -> _Place:
        """Decide trajectory and parent, strongest evidence first."""
        inside = None if identity.node is None else identity.node.trajectory_id
        query = ParentQuery(fact, head, inside, head.key)
        named = identity.previous
        if named is not None and not query.fits(named):
            named = None
        if named is not None:
            query = replace(query, context=shorten(self._chain(fact, head, named)[0]))
        parent = named or find_parent(self._index, query)
        source, resumed = identity.source, None
        if parent is not None and identity.node is None and self._is_stranger(identity, parent):
            # The client itself says that this is another session: a resumed history.
            parent, resumed = None, parent
            query = replace(query, trajectory_id="", context=head.key)
        failed = find_failed_attempt(self._index, query, parent)
        answered = find_unseen_answer(self._index, query, parent) if failed is None else None
        repeats = failed or answered
        if repeats is not None and identity.node is None and self._is_stranger(identity, repeats):
            repeats = answered = None
        node, echo = identity.node, None
        relative = parent or repeats
        if node is None and relative is not None:
            node = self._index.state.trajectories[relative.trajectory_id]
            if source in ("none", "traceparent"):
                source = "previous_response_id" if named is not None else "prefix"
        if parent is None and resumed is None and (identity.is_nameless or node is not None):
            # A root in a trajectory that is known already can only quote its own.
            echo = find_echo(self._index, fact, within=node)
            if echo is not None and node is None:
                node, source = echo.node, "prefix"
        caller = None
        is_root = parent is None and repeats is None and resumed is None
        if node is None:
            node = self._begin(fact)
            if is_root and identity.above is not None:
                caller = self._caller(identity.above, fact)
        elif is_root and echo is None and self._begins_helper(node, fact, identity):
            caller = self._caller(identity.above or node, fact)
        duplicate = None
        if answered is not None and fact.output:
            duplicate = answered if answered.output == fact.output[1] else None
        elif named is not None and fact.is_look_up and fact.output:
            duplicate = named if named.output == fact.output[1] else None
        self._name(node, fact)
        return _Place(node, parent, source, repeats, duplicate, resumed, echo, caller)

    def _is_stranger(self, identity: Identity, step: StepNode) -> bool:
        return identity.is_stranger_to(self._index.state.trajectories[step.trajectory_id])

    def _caller(self, above: TrajectoryNode, fact: Fact) -> StepNode | None:
        """Return the step that gave the orders quoted here, else one that gave orders, the latest."""
        echo = find_echo(self._index, fact, within=above)
        if echo is not None and echo.step is not None:
            return echo.step
        steps = [step for step in above.steps if step.started <= fact.started and not step.failure]
        return max(
            steps,
            key=lambda step: (
                any(item.orders for item in step.pending),
                step.started,
                step.step_id,
            ),
            default=None,
        )

    def _begins_helper(self, node: TrajectoryNode, fact: Fact, identity: Identity) -> bool:
        """Tell whether the client says that a sub-agent of this trajectory begins here."""
        if not (fact.is_helper or identity.above is not None):
            return False
        return any(list(name) not in node.sessions for name in fact.sessions)

    def _begin(self, fact: Fact) -> TrajectoryNode:
        fact.closer()
        known = self._index.state.trajectories.get(fact.trajectory_id)
        if known is not None:  # it began a settled trajectory, and comes again
            return known
        node = TrajectoryNode(
            trajectory_id=fact.trajectory_id,
            tenant=fact.tenant,
            scope=fact.scope,
            last_at=0.0,
            roots=0,
            has_tools=False,
            group=fact.group or fact.task,
            hint=fact.hint,
            sessions=[],
            servers=[],
            started=fact.started,
            answered=fact.ended,
            system=fact.system,
            opening=list(fact.opening),
            words=fact.words,
            place=fact.place,
        )
        self._index.add_trajectory(node)
        return node

    def _name(self, node: TrajectoryNode, fact: Fact) -> None:
        for source, session in fact.sessions:
            self._index.add_session(node, source, session)

    def _make_step(
        self, fact: Fact, head: ChainNode, identity: Identity, place: _Place
    ) -> StepNode:
        parent = place.parent
        loose, exact, length = head.loose, head.exact, head.position
        system, count = fact.system, fact.system_count
        if parent is not None and identity.previous is parent:
            # Only the delta was sent: the chain goes on from the parent's conversation.
            loose, exact = self._chain(fact, head, parent)
            length += parent.length + _has_answer(fact, parent)
            system, count = parent.system, parent.system_count
        conversation = exact_conversation = None
        if fact.output:
            conversation = self._make.link(loose, lengthen(fact.output[0]))
            exact_conversation = self._make.link(exact, lengthen(fact.output[1]))
        return StepNode(
            step_id=fact.step_id,
            parent_id=None if parent is None else parent.step_id,
            index=0 if parent is None else parent.index + 1,
            children=0,
            system=system,
            system_count=count,
            length=length,
            context=head.key if loose is head.loose else shorten(loose),
            exact_context=None if exact == loose else shorten(exact),
            conversation=conversation,
            exact_conversation=None if exact_conversation == conversation else exact_conversation,
            output=fact.output[1] if fact.output else "",
            response=fact.response,
            dialogue=fact.dialogue,
            started=fact.started,
            ended=fact.ended,
            retry=fact.retry,
            failure=fact.failure,
            request=fact.request,
            claimed=False,
            answer=list(fact.answer),
            calls=list(fact.calls),
            pending=fact.fresh_pending(),
            trajectory_id=place.node.trajectory_id,
        )

    def _chain(self, fact: Fact, head: ChainNode, parent: StepNode) -> tuple[bytes, bytes]:
        """Return the loose and the exact chain over a parent's conversation and what was sent."""
        loose, exact = parent.context, parent.exact_context_hash()
        if fact.is_look_up:  # it sent nothing, so who sends all of it goes on from here
            return lengthen(loose), lengthen(exact)
        if _has_answer(fact, parent):
            loose = parent.conversation or loose
            exact = parent.exact_conversation_hash() or exact
        return (
            self._make.digest(lengthen(loose) + head.loose),
            self._make.digest(lengthen(exact) + head.exact),
        )

    def _remember(self, fact: Fact, step: StepNode, place: _Place) -> None:
        node = place.node
        node.last_at = max(node.last_at, step.started, step.ended)
        node.has_tools = node.has_tools or (fact.has_tools and not step.failure)
        if place.repeats is not None:
            place.repeats.claimed = True
        if place.duplicate is not None:
            return
        if not step.failure:
            if place.parent is not None:
                place.parent.children += 1
                self._index.drop_answer(place.parent)
                settle(self._index, fact, place.parent)
            else:
                node.roots += 1
        self._index.add_step(node, step)

    def _link(self, fact: Fact, place: _Place) -> None:
        placement = fact.placement
        if placement is None:
            return
        if place.repeats is not None:
            self._add_link(fact, "retry", place.repeats.step_id)
        if place.echo is not None and placement.role != "discarded":
            self._link_echo(fact, place.echo)
        if place.caller is not None:
            self._add_link(fact, SUBAGENT_CALL, place.caller.step_id)
        if place.resumed is not None:
            self._add_link(fact, RESUMED, place.resumed.step_id)
        if place.parent is not None and placement.role != "discarded":
            if fact.is_handed_over and fact.system != place.parent.system:
                self._add_link(fact, "handoff", place.parent.step_id)
            self._link_returns(fact, place.parent)
        if placement.branch and placement.parent_step_id and place.duplicate is None:
            self._add_link(fact, "fork", placement.parent_step_id)

    def _link_returns(self, fact: Fact, asking: StepNode) -> None:
        """Link the last answers of the sub-agents whose results the call brings back."""
        if not fact.told or not asking.calls:
            return
        index = self._index
        for helper in index.helpers_of(asking.step_id):
            place = helper.placement
            node = None if place is None else index.state.trajectories.get(place.trajectory_id)
            last = None if node is None else _last_answer(node, helper.step_id, fact.started)
            if last is not None:
                self._add_link(fact, SUBAGENT_RETURN, last.step_id)

    def _link_echo(self, fact: Fact, echo: Echo) -> None:
        """Link the quotation, and correct the role of a call that it explains."""
        if echo.step is not None:
            self._add_link(fact, echo.kind.value, echo.step.step_id)
            if echo.kind is EchoKind.COMPACTION:
                self._explain(echo.step.step_id, "compaction")
        elif echo.node.steps:
            first = echo.node.steps[0].step_id
            if not echo.opening_is_auxiliary:
                self._add_link(fact, "auxiliary", first)
                return
            link = self._link_of(fact, "auxiliary", fact.step_id)
            told = self._index.by_step.get(first)
            if told is not None:
                self.note(told)
            if told is None:
                self.strays.append(StrayLink(fact.tenant, first, link))
            else:
                told.links = (*told.links, link)
            self._explain(first, "auxiliary")

    def _explain(self, step_id: str, role: str) -> None:
        fact = self._index.by_step.get(step_id)
        if fact is not None and fact.placement is not None and fact.placement.role == "agent":
            self.note(fact)
            fact.placement = replace(fact.placement, role=role)

    def _add_link(
        self, fact: Fact, kind: str, from_step_id: str, *, key_source: str | None = None
    ) -> None:
        link = self._link_of(fact, kind, from_step_id, key_source=key_source)
        fact.links = (*fact.links, link)

    def _link_of(
        self, fact: Fact, kind: str, from_step_id: str, *, key_source: str | None = None
    ) -> LinkFact:
        placement = fact.placement
        if placement is None:
            raise ValueError("a fact is placed before it is linked")
        source = key_source or placement.key_source
        return LinkFact(kind, from_step_id, placement.trajectory_id, source, fact.ended)

    def _place_dispatch(self, fact: Fact) -> None:
        index = self._index
        identity = identify(index, fact)
        inside = None if identity.node is None else identity.node.trajectory_id
        asked = find_asking_step(index, fact, trajectory_id=inside)
        node, source = identity.node, identity.source
        if asked is not None:
            node = index.state.trajectories[asked[0].trajectory_id]
            source = source if identity.node is not None else "tool_call"
            index.drop_pending(asked[0], [asked[1]])
            if fact.server is not None:
                index.add_server(node, fact.server)
        elif node is None:
            node, source = self._tool_session(fact, identity)
        self._name(node, fact)
        node.last_at = max(node.last_at, fact.ended)
        effect = fact.effect or index.effect(fact.effect_name, fact.order) or fact.usual_effect
        fact.placement = Placement(
            trajectory_id=node.trajectory_id,
            step_index=0 if asked is None else asked[0].index + 1,
            parent_step_id=None if asked is None else asked[0].step_id,
            branch=0,
            role="agent",
            key_source=source,
            keep=0,
            skip=0,
            session_hint=fact.hint or node.hint,
            group_id=fact.group or node.group,
            side_effect=effect,
        )
        if asked is not None:
            self._add_link(fact, "tool_dispatch", asked[0].step_id, key_source="tool_call")

    def _tool_session(self, fact: Fact, identity: Identity) -> tuple[TrajectoryNode, str]:
        """Return the trajectory of a tool session that no model step asked through."""
        if fact.server is None:
            return self._begin(fact), identity.source
        source = "client:mcp-session-id"
        known = self._index.session(fact.server)
        if known is None:
            known = self._begin(fact)
            self._index.add_session(known, source, fact.server)
        return known, source


def _last_answer(node: TrajectoryNode, first: str, before: float) -> StepNode | None:
    """Return the last answer without tool calls of those that go on from a step; None without one."""
    below, found = {first}, None
    for step in sorted(node.steps, key=lambda step: (step.index, step.started, step.step_id)):
        if step.step_id != first and step.parent_id not in below:
            continue
        below.add(step.step_id)
        if step.ended <= before and not (step.failure or step.pending or step.children):
            found = step
    return found


def _role(fact: Fact, place: _Place) -> str:
    if fact.failure:
        return "discarded"
    if fact.is_queued:
        return "queued"
    if place.echo is not None:
        beside = place.echo.kind is EchoKind.AUXILIARY and not place.echo.opening_is_auxiliary
        return "auxiliary" if beside else "agent"
    aside = place.parent is None and place.node.has_tools and not fact.has_tools
    return "auxiliary" if aside and place.key_source not in ("none", "prefix") else "agent"


def _has_answer(fact: Fact, parent: StepNode) -> bool:
    """Tell whether a call with only what is new goes on from its parent's answer.

    A look-up goes on from what was asked; what a broken stream brought of the answer comes again.
    """
    return parent.conversation is not None and not fact.is_look_up


def _difference(
    fact: Fact, head: ChainNode, parent: StepNode | None, *, is_delta: bool
) -> tuple[int, int]:
    """Return how much of the parent's conversation this call resends exactly, and what to skip."""
    if parent is None:
        return 0, 0
    if is_delta:
        kept = parent.system_count + parent.length + _has_answer(fact, parent)
        return kept, fact.system_count if fact.system == parent.system else 0
    here = head.at(parent.length)
    if fact.system != parent.system or here is None:
        return 0, 0
    if shorten(here.exact) != parent.exact_context_hash():
        return 0, 0
    keep = parent.system_count + parent.length
    further = head.at(parent.length + 1)
    if further is not None and shorten(further.exact) == parent.exact_conversation_hash():
        keep += 1
    return keep, keep


def _is_replaced(head: ChainNode, parent: StepNode | None) -> bool:
    """Tell whether the context goes on from the parent's question with another answer than its own.

    Reasoning that was left out and white space do not make another answer.
    """
    if parent is None or parent.failure or parent.conversation is None:
        return False
    here, after = head.at(parent.length), head.at(parent.length + 1)
    return (
        here is not None
        and after is not None
        and after.is_turn
        and shorten(here.loose) == parent.context
        and shorten(after.loose) != parent.conversation
    )
