"""From loose calls to trajectories, batch by batch, with a small memory between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from trajectory.assembly.dispatches import (
    find_asking_step,
    pending_calls,
    settle,
    told_results,
)
from trajectory.assembly.echoes import Echo, EchoKind, find_echo, openings
from trajectory.assembly.effects import ToolEffects
from trajectory.assembly.feedback import place_feedback
from trajectory.assembly.fingerprint import (
    CallPrint,
    Fingerprinter,
    lengthen,
    shorten,
)
from trajectory.assembly.index import StateIndex
from trajectory.assembly.parents import (
    Question,
    find_failed_attempt,
    find_parent,
    find_unseen_answer,
)
from trajectory.assembly.sessions import Identity, identify, scope_name
from trajectory.assembly.shadows import place_shadow
from trajectory.assembly.sketches import opening_texts, sketch
from trajectory.assembly.state import AssemblerState, StepNode, TrajectoryNode
from trajectory.call import Call, CallKind
from trajectory.dialects.wire import header
from trajectory.effects import SideEffect
from trajectory.exchange import ExchangeOutcome, Feedback
from trajectory.message import Message
from trajectory.placement import Assembly, PlacedCall, PlacedLink

_ASIDE_DELAY = timedelta(seconds=2)


@dataclass(slots=True)
class _Batch:
    told: dict[str, str]
    """What models of this batch were told by their tools."""
    placed: list[PlacedCall] = field(default_factory=list)
    unplaced: list[Call] = field(default_factory=list)
    links: list[PlacedLink] = field(default_factory=list)


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


class Assembler:
    """Places calls in trajectories.

    Deterministic: the same state and the same calls, in any order and with repetitions, give
    the same assembly. ``assemble`` moves the state on: save it together with the position of
    the spool, and begin a repeated batch from the state that was saved. An exchange that the
    state already holds is not placed again. Never blocks, holds no content.
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
        self._effects = ToolEffects(self._index.state, self._make, tool_effects or {})

    @property
    def state(self) -> AssemblerState:
        """What to keep until the next batch; see :meth:`AssemblerState.to_json`."""
        return self._index.state

    def assemble(self, calls: Sequence[Call], feedback: Sequence[Feedback] = ()) -> Assembly:
        """Place one batch of calls, then the feedback that came with it."""
        unique = {call.exchange.exchange_id: call for call in calls}
        ordered = sorted(unique.values(), key=_turn)
        models = (
            call for call in ordered if call.kind is CallKind.MODEL and not call.exchange.shadow_of
        )
        batch = _Batch(told_results(self._make, models, lambda call: scope_name(self._make, call)))
        for call in ordered:
            self._place(batch, call)
        batch.placed.sort(key=lambda item: _order(item.call))
        resolved = place_feedback(self._index, self._make, feedback)
        self._index.forget_idle()
        return Assembly(tuple(batch.placed), tuple(batch.unplaced), tuple(batch.links), resolved)

    def _place(self, batch: _Batch, call: Call) -> None:
        state = self._index.state
        state.clock = max(state.clock, call.exchange.started_at.timestamp())
        if call.kind is CallKind.MODEL and call.exchange.shadow_of:
            placed, link = place_shadow(self._make, call)
            batch.placed.append(placed)
            batch.links.append(link)
        elif call.kind is CallKind.MODEL:
            self._place_model(batch, call)
        elif call.kind is CallKind.TOOL and call.dispatch is not None:
            self._place_dispatch(batch, call)
        else:
            if call.kind is CallKind.CONTROL and call.tools:
                self._effects.learn(call)
            batch.unplaced.append(call)

    def _step_id(self, call: Call) -> str:
        return self._make.identifier("step", call.exchange.exchange_id)

    def _place_model(self, batch: _Batch, call: Call) -> None:
        step_id = self._step_id(call)
        if step_id in self._index.steps:
            return
        identity = identify(self._index, self._make, call)
        prints = self._make.call(call, identity.scope)
        place = self._find_place(call, identity, prints)
        step = self._make_step(call, prints, identity, place)
        keep, new = _difference(call, prints, place, step)
        branch = place.node.roots if place.parent is None else place.parent.children
        placed = PlacedCall(
            call=call,
            trajectory_id=place.node.trajectory_id,
            step_id=step_id,
            step_index=step.index,
            parent_step_id=step.parent_id,
            branch=branch,
            role_in_graph=_role(call, place, step),
            key_source=place.key_source,
            context_keep=keep,
            new_messages=new,
            answer_replaced=_is_replaced(call, prints, place.parent),
            retry_of=None if place.repeats is None else place.repeats.step_id,
            duplicate_of=None if place.duplicate is None else place.duplicate.step_id,
            session_hint=identity.hint or place.node.hint,
            group_id=identity.group or place.node.group,
            context_is_delta=place.parent is not None and identity.previous is place.parent,
        )
        batch.placed.append(placed)
        self._remember(call, step, place)
        self._link(batch, placed, place)

    def _find_place(self, call: Call, identity: Identity, prints: CallPrint) -> _Place:
        """Decide trajectory and parent, strongest evidence first."""
        question = Question(
            call=call,
            print=prints,
            started=call.exchange.started_at.timestamp(),
            retry=_retry(call),
            scope=identity.scope,
            trajectory_id=None if identity.node is None else identity.node.trajectory_id,
        )
        named = identity.previous
        if named is not None and not question.fits(named):
            named = None
        parent = named or find_parent(self._index, self._make, question)
        source, resumed = identity.source, None
        if parent is not None and identity.node is None and self._is_stranger(identity, parent):
            # The client itself says that this is another session: a resumed history.
            parent, resumed = None, parent
            question = replace(question, trajectory_id="")
        failed = find_failed_attempt(self._index, question, parent)
        response = self._response(call, identity)
        answered = None
        if failed is None:
            answered = find_unseen_answer(self._index, question, parent, response)
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
            echo = self._find_echo(call, prints, question, within=node)
            if echo is not None and node is None:
                node, source = echo.node, "prefix"
        caller = None
        if node is None:
            node = self._begin(call, identity, prints)
            if parent is None and repeats is None and identity.above is not None:
                caller = self._caller(identity.above, call, prints, question)
        duplicate = None
        if answered is not None and prints.output is not None:
            same = answered.output == shorten(prints.output.exact)
            duplicate = answered if same else None
        self._name(node, identity)
        return _Place(node, parent, source, repeats, duplicate, resumed, echo, caller)

    def _is_stranger(self, identity: Identity, step: StepNode) -> bool:
        return identity.is_stranger_to(self._index.state.trajectories[step.trajectory_id])

    def _caller(
        self, above: TrajectoryNode, call: Call, prints: CallPrint, question: Question
    ) -> StepNode | None:
        """Return the step that gave the orders quoted here, else the latest of that session."""
        echo = self._find_echo(call, prints, question, within=above)
        if echo is not None and echo.step is not None:
            return echo.step
        steps = [step for step in above.steps if step.started <= question.started]
        return max(steps, key=lambda step: (step.started, step.step_id), default=None)

    def _find_echo(
        self, call: Call, prints: CallPrint, question: Question, *, within: TrajectoryNode | None
    ) -> Echo | None:
        return find_echo(
            self._index,
            self._make,
            call.context,
            scope=question.scope,
            system=prints.system,
            has_tools=bool(call.tools),
            started=question.started,
            failed=bool(_failure(call)),
            within=within,
        )

    def _begin(self, call: Call, identity: Identity, prints: CallPrint | None) -> TrajectoryNode:
        group = identity.group
        if group is None and prints is not None and prints.task:
            tenant = call.exchange.client.tenant_id
            group = self._make.identifier("task", tenant, prints.task.hex())
        scope, has_tools = identity.scope, bool(call.tools)
        node = TrajectoryNode(
            trajectory_id=self._make.identifier("trajectory", call.exchange.exchange_id),
            tenant=identity.tenant,
            scope=identity.scope,
            last_at=0.0,
            roots=0,
            has_tools=False,
            group=group,
            hint=identity.hint,
            sessions=[],
            servers=[],
            started=call.exchange.started_at.timestamp(),
            answered=(call.exchange.ended_at or call.exchange.started_at).timestamp(),
            system="" if prints is None else prints.system,
            opening=openings(self._make, scope, call.context, has_tools=has_tools),
            words=sum(len(text.split()) for text in opening_texts(call.context)),
        )
        self._index.add_trajectory(node)
        return node

    def _name(self, node: TrajectoryNode, identity: Identity) -> None:
        for source, session in identity.sessions:
            self._index.add_session(node, source, session)

    def _response(self, call: Call, identity: Identity) -> str | None:
        if call.response_id is None:
            return None
        return self._make.short("response", identity.tenant, call.response_id)

    def _make_step(
        self, call: Call, prints: CallPrint, identity: Identity, place: _Place
    ) -> StepNode:
        exchange = call.exchange
        head_loose, head_exact, length, system = _heads(prints, identity, place)
        conversation = exact_conversation = None
        if prints.output is not None:
            conversation = self._make.link(head_loose, prints.output.loose)
            exact_conversation = self._make.link(head_exact, prints.output.exact)
        failure = _failure(call)
        scope = identity.scope
        pending = [] if failure else pending_calls(self._make, call.output, scope)
        context, exact = shorten(head_loose), shorten(head_exact)
        parent = place.parent
        return StepNode(
            step_id=self._step_id(call),
            parent_id=None if parent is None else parent.step_id,
            index=0 if parent is None else parent.index + 1,
            children=0,
            system=system[0],
            system_count=system[1],
            length=length,
            context=context,
            exact_context=None if exact == context else exact,
            conversation=conversation,
            exact_conversation=None if exact_conversation == conversation else exact_conversation,
            output="" if prints.output is None else shorten(prints.output.exact),
            response=self._response(call, identity),
            started=exchange.started_at.timestamp(),
            ended=(exchange.ended_at or exchange.started_at).timestamp(),
            retry=_retry(call),
            failure=failure,
            request=prints.request,
            claimed=False,
            answer=self._answer(call, scope, failure),
            calls=[item.call for item in pending],
            pending=pending,
            trajectory_id=place.node.trajectory_id,
        )

    def _answer(self, call: Call, scope: str, failure: str) -> list[str]:
        if failure or call.output is None or call.output.tool_calls():
            return []
        return sketch(self._make, scope, call.output.text())

    def _remember(self, call: Call, step: StepNode, place: _Place) -> None:
        node = place.node
        node.last_at = max(node.last_at, step.started, step.ended)
        node.has_tools = node.has_tools or (bool(call.tools) and not step.failure)
        if place.repeats is not None:
            place.repeats.claimed = True
        if place.duplicate is not None:
            return
        if not step.failure:
            if place.parent is not None:
                place.parent.children += 1
                self._index.drop_answer(place.parent)
                settle(self._index, self._make, call, place.parent)
            else:
                node.roots += 1
        self._index.add_step(node, step)

    def _link(self, batch: _Batch, placed: PlacedCall, place: _Place) -> None:
        if place.repeats is not None:
            batch.links.append(_link_of(placed, "retry", place.repeats.step_id))
        if place.echo is not None and placed.role_in_graph != "discarded":
            self._link_echo(batch, placed, place.echo)
        if place.caller is not None:
            batch.links.append(_link_of(placed, "subagent_call", place.caller.step_id))
        if place.resumed is not None:
            batch.links.append(_link_of(placed, "prefix", place.resumed.step_id))
        if placed.branch > 0 and placed.parent_step_id is not None and place.duplicate is None:
            batch.links.append(_link_of(placed, "fork", placed.parent_step_id))

    def _link_echo(self, batch: _Batch, placed: PlacedCall, echo: Echo) -> None:
        """Link the quotation; correct the role of a call of this batch that it explains.

        A call of an earlier batch has its role already: there the link tells it.
        """
        explained, role = "", ""
        if echo.step is not None:
            batch.links.append(_link_of(placed, echo.kind.value, echo.step.step_id))
            if echo.kind is EchoKind.COMPACTION:
                explained, role = echo.step.step_id, "compaction"
        elif echo.node.steps:
            first = echo.node.steps[0].step_id
            link = _link_of(placed, "auxiliary", first)
            if echo.opening_is_auxiliary:
                explained, role = first, "auxiliary"
                link = replace(link, from_step_id=placed.step_id, to_step_id=first)
            batch.links.append(link)
        for position, item in enumerate(batch.placed):
            if item.step_id == explained and item.role_in_graph == "agent":
                batch.placed[position] = replace(item, role_in_graph=role)

    def _place_dispatch(self, batch: _Batch, call: Call) -> None:
        dispatch = call.dispatch
        if dispatch is None:
            return
        identity = identify(self._index, self._make, call)
        served = self._index.by_server.get(identity.server or "", set())
        asked = find_asking_step(
            self._index,
            self._make,
            dispatch,
            scope=identity.scope,
            started=call.exchange.started_at.timestamp(),
            trajectory_id=None if identity.node is None else identity.node.trajectory_id,
            served=served,
            told=batch.told,
        )
        node, source = identity.node, identity.source
        if asked is not None:
            node = self._index.state.trajectories[asked[0].trajectory_id]
            source = source if identity.node is not None else "tool_call"
            self._index.drop_pending(asked[0], [asked[1]])
            if identity.server is not None:
                self._index.add_server(node, identity.server)
        elif node is None:
            node, source = self._tool_session(call, identity)
        self._name(node, identity)
        ended = call.exchange.ended_at or call.exchange.started_at
        node.last_at = max(node.last_at, ended.timestamp())
        placed = PlacedCall(
            call=call,
            trajectory_id=node.trajectory_id,
            step_id=self._step_id(call),
            step_index=0 if asked is None else asked[0].index + 1,
            parent_step_id=None if asked is None else asked[0].step_id,
            branch=0,
            role_in_graph="agent",
            key_source=source,
            context_keep=0,
            new_messages=(),
            session_hint=identity.hint or node.hint,
            group_id=identity.group or node.group,
            side_effect=self._effects.of(call).value,
        )
        batch.placed.append(placed)
        if asked is not None:
            link = _link_of(placed, "tool_dispatch", asked[0].step_id, key_source="tool_call")
            batch.links.append(link)

    def _tool_session(self, call: Call, identity: Identity) -> tuple[TrajectoryNode, str]:
        """Return the trajectory of a tool session that no model step asked through."""
        if identity.server is not None:
            known = self._index.session(identity.server)
            source = "client:mcp-session-id"
            if known is None:
                known = self._begin(call, identity, None)
                self._index.add_session(known, source, identity.server)
            return known, source
        return self._begin(call, identity, None), identity.source


def _order(call: Call) -> tuple[datetime, str]:
    return call.exchange.started_at, call.exchange.exchange_id


def _turn(call: Call) -> tuple[datetime, str]:
    """Return when a call is placed: at its start, or a little later when it may be auxiliary.

    A title maker often starts a moment before the call whose opening it quotes. Nothing can go
    on from a call before it has ended, so waiting until then changes nothing else.
    """
    exchange = call.exchange
    opens = call.kind is CallKind.MODEL and not call.tools
    if not opens or any(message.role == "assistant" for message in call.context):
        return _order(call)
    ended = max(exchange.ended_at or exchange.started_at, exchange.started_at)
    return min(ended, exchange.started_at + _ASIDE_DELAY), exchange.exchange_id


def _retry(call: Call) -> int:
    said = header(call.exchange.request.headers, "x-stainless-retry-count")
    return call.retry_count if said is not None or call.retry_count else -1


def _failure(call: Call) -> str:
    """Return how an attempt failed; empty when it has an answer to go on from."""
    status = None if call.exchange.response is None else call.exchange.response.status
    if status is not None and status >= 400:
        return "error"
    broken = call.exchange.outcome is not ExchangeOutcome.COMPLETE
    if broken and call.finish_reason is None:
        return "cut"
    if call.output is None:
        return "cut" if broken or status is None else "error"
    if call.error is not None and call.finish_reason is None:
        return "cut"
    return ""


def _role(call: Call, place: _Place, step: StepNode) -> str:
    if step.failure:
        return "discarded"
    if place.echo is not None:
        beside = place.echo.kind is EchoKind.AUXILIARY and not place.echo.opening_is_auxiliary
        return "auxiliary" if beside else "agent"
    aside = place.parent is None and place.node.has_tools and not call.tools
    return "auxiliary" if aside and place.key_source not in ("none", "prefix") else "agent"


def _heads(
    prints: CallPrint, identity: Identity, place: _Place
) -> tuple[bytes, bytes, int, tuple[str, int]]:
    """Return both chain heads over the context, its length, and hash and count of its system part."""
    parent = place.parent
    if parent is None or identity.previous is not parent:
        system = (prints.system, prints.system_count)
        return prints.loose[-1], prints.exact[-1], len(prints.messages), system
    # Only the delta was sent: the chain goes on from the parent's conversation.
    loose = lengthen(parent.conversation or parent.context)
    exact = lengthen(parent.exact_conversation_hash() or parent.exact_context_hash())
    length = parent.length + (parent.conversation is not None) + len(prints.messages)
    return loose, exact, length, (parent.system, parent.system_count)


def _difference(
    call: Call, prints: CallPrint, place: _Place, step: StepNode
) -> tuple[int, tuple[Message, ...]]:
    """Return how much of the parent's conversation this call resends exactly, and the rest."""
    parent = place.parent
    if parent is None:
        return 0, call.context
    if step.length > len(prints.messages):
        kept = parent.system_count + parent.length + (parent.conversation is not None)
        skip = prints.system_count if prints.system == parent.system else 0
        return kept, call.context[skip:]
    if prints.system != parent.system or parent.length >= len(prints.exact):
        return 0, call.context
    if shorten(prints.exact[parent.length]) != parent.exact_context_hash():
        return 0, call.context
    keep = parent.system_count + parent.length
    further = parent.length + 1
    if (
        further < len(prints.exact)
        and shorten(prints.exact[further]) == parent.exact_conversation_hash()
    ):
        keep += 1
    return keep, call.context[keep:]


def _is_replaced(call: Call, prints: CallPrint, parent: StepNode | None) -> bool:
    """Tell whether the context goes on from the parent's question with another answer than its own.

    Reasoning that was left out and white space do not make another answer.
    """
    if parent is None or parent.failure or parent.conversation is None:
        return False
    chain, after = prints.loose, parent.length + 1
    return (
        after < len(chain)
        and call.context[prints.system_count + parent.length].role == "assistant"
        and shorten(chain[parent.length]) == parent.context
        and shorten(chain[after]) != parent.conversation
    )


def _link_of(
    placed: PlacedCall, kind: str, from_step_id: str, *, key_source: str | None = None
) -> PlacedLink:
    return PlacedLink(
        tenant_id=placed.call.exchange.client.tenant_id,
        kind=kind,
        from_step_id=from_step_id,
        to_step_id=placed.step_id,
        trajectory_id=placed.trajectory_id,
        recorded_at=_recorded_at(placed),
        key_source=key_source or placed.key_source,
    )


def _recorded_at(placed: PlacedCall) -> datetime:
    return placed.call.exchange.ended_at or placed.call.exchange.started_at
