"""Finding the step that a model call goes on from, and the failed attempt that it repeats."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from trajectory.assembly.call_facts import Fact
from trajectory.assembly.graph import StateIndex
from trajectory.assembly.nodes import ChainNode, PendingCall, StepNode, shorten

RETRY_WINDOW_SECONDS = 900.0
"""How long after a failed attempt the same context still counts as its repetition."""

_SDK_RETRY_SECONDS = 60.0
"""An SDK that repeats by itself does so within this time."""

_FIRST_PAUSE_SECONDS = 0.44
"""How long the SDKs of OpenAI and Anthropic usually wait before their first repetition."""

_CLOCK_TOLERANCE_SECONDS = 0.5
"""An end may be written this much after the client went on."""


type LookUp = Callable[[str], Sequence[StepNode]]


@dataclass(frozen=True, slots=True)
class ParentQuery:
    """What is asked about one model call."""

    fact: Fact
    head: ChainNode
    """The chain over the call's own context."""
    trajectory_id: str | None
    """The only trajectory to look in; None looks in all of the scope."""
    context: str
    """The chain over the whole context, also where only the end of it was sent."""

    def fits(self, step: StepNode) -> bool:
        """Tell whether a step may be the parent or an earlier attempt."""
        return self.is_inside(step) and step.started <= self.fact.started

    def is_inside(self, step: StepNode) -> bool:
        """Tell whether a step is where the call may belong."""
        return self.trajectory_id is None or step.trajectory_id == self.trajectory_id

    def turns(self) -> Iterator[ChainNode]:
        """Yield the turns of the model in the context, the last one first."""
        return (node for node in self.head.back() if node.is_turn)


def find_parent(index: StateIndex, query: ParentQuery) -> StepNode | None:
    """Return the step whose conversation the call extends; None for a beginning.

    Asked in order: a step whose whole conversation leads the context, with no turn of the model
    after it; the step that made the tool calls in the context's last turn (the client may have
    changed or cut what stands before); a step whose context leads this one (the client edited
    the answer); at last the longest conversation, a fork further back.
    """
    last_turn = next(query.turns(), None)
    after = 0 if last_turn is None else last_turn.position
    found, position = _longest(index.conversations, query, query.head)
    if found is not None and position >= after:
        return found
    if asked := _by_tool_calls(index, query):
        return asked
    edited, edited_position = _longest(index.contexts, query, query.head.before, usable=True)
    if edited is not None and edited_position > position and _is_telling(query, edited_position):
        return edited
    if found is None and edited is not None and _is_alone(index, query, edited):
        return edited
    return found


def _is_telling(query: ParentQuery, position: int) -> bool:
    """Tell whether the leading messages hold a turn of the model: others may open alike."""
    return any(node.position <= position for node in query.turns())


def _is_alone(index: StateIndex, query: ParentQuery, step: StepNode) -> bool:
    """Tell whether no other session opened with this context and waits for its next call."""
    open_steps = [
        other
        for other in index.contexts(step.context)
        if query.fits(other) and other.children == 0 and not other.failure
    ]
    return open_steps == [step]


def _longest(
    look_up: LookUp, query: ParentQuery, start: ChainNode | None, *, usable: bool = False
) -> tuple[StepNode | None, int]:
    """Return the likeliest step under the longest leading chain, and how many messages that has."""
    for node in start.back() if start is not None else ():
        steps = look_up(node.key)
        if not steps:
            continue
        fitting = (step for step in steps if query.fits(step) and not (usable and step.failure))
        if best := _most_likely(query, fitting, shorten(node.exact)):
            return best, node.position
    return None, -1


def _most_likely(query: ParentQuery, steps: Iterable[StepNode], exact: str = "") -> StepNode | None:
    """Return a step that had ended and that nothing goes on from yet, the latest such one.

    One whose conversation is resent to the letter (``exact``) goes before others.
    """
    latest = query.fact.started + _CLOCK_TOLERANCE_SECONDS
    return max(
        steps,
        key=lambda step: (
            step.ended <= latest,
            step.exact_conversation_hash() == exact,
            step.children == 0,
            step.ended,
            step.step_id,
        ),
        default=None,
    )


def _by_tool_calls(index: StateIndex, query: ParentQuery) -> StepNode | None:
    """Return the step that made the calls of the last turn with calls, if only one can be meant."""
    asking = next((node for node in query.turns() if node.calls), None)
    for name in () if asking is None else asking.calls:
        fitting = [step for step in index.calls(name) if query.fits(step)]
        if len(fitting) == 1 or (fitting and query.trajectory_id is not None):
            return _most_likely(query, fitting)
    return None


def find_failed_attempt(
    index: StateIndex, query: ParentQuery, parent: StepNode | None
) -> StepNode | None:
    """Return the failed attempt at the same context that this call repeats.

    An SDK that counts its attempts says which one it repeats. Without a count the nearest
    unclaimed failure is taken, but not one that its own SDK is about to repeat.
    """
    started = query.fact.started
    if query.fact.is_look_up:
        return None
    candidates = [
        step
        for step in index.failures(query.context)
        if query.fits(step)
        and step.parent_id == _id(parent)
        and not step.claimed
        and started - step.ended <= RETRY_WINDOW_SECONDS
        and _may_repeat(query, step)
    ]
    return max(candidates, key=lambda step: _likeliness(query, step), default=None)


def _likeliness(query: ParentQuery, step: StepNode) -> tuple[bool, bool, bool, float, str]:
    """Order failed attempts: the same bytes, the count before, a cut, the usual pause."""
    fact = query.fact
    waited = fact.started - step.ended
    usual = _FIRST_PAUSE_SECONDS * 2 ** min(fact.retry - 1, 4) if fact.retry > 0 else 0.0
    return (
        step.request == fact.request,
        step.retry == fact.retry - 1,
        step.failure == "cut",
        -abs(waited - usual),
        step.step_id,
    )


def _may_repeat(query: ParentQuery, step: StepNode) -> bool:
    fact = query.fact
    if step.ended > fact.started + _CLOCK_TOLERANCE_SECONDS:
        return False
    if fact.retry > 0:
        return step.retry < fact.retry and step.request == fact.request
    if step.parent_id is None and step.request != fact.request:
        return False  # another session may open with the same words in another way
    if step.failure == "cut" or step.retry != 0:
        return True
    return fact.started - step.ended > _SDK_RETRY_SECONDS


def find_unseen_answer(
    index: StateIndex, query: ParentQuery, parent: StepNode | None
) -> StepNode | None:
    """Return the attempt that was answered in full although the client asks again.

    Either the SDK counts a repetition, or the very same response came twice. Of these the one
    stored before may have begun later: the span around a call begins before its request.
    """
    fact, context = query.fact, query.context
    same = [] if fact.response is None else list(index.responses(fact.response))
    if fact.retry > 0:
        same += [
            step
            for step in index.contexts(context)
            if step.retry == fact.retry - 1
            and step.children == 0
            and step.request == fact.request
            and step.started <= fact.started
        ]
    candidates = [
        step
        for step in same
        if not step.failure
        and step.context == context
        and query.is_inside(step)
        and step.parent_id == _id(parent)
        and (fact.is_look_up or fact.started - step.ended <= RETRY_WINDOW_SECONDS)
    ]
    return max(candidates, key=lambda step: (step.ended, step.step_id), default=None)


def _id(step: StepNode | None) -> str | None:
    return None if step is None else step.step_id


ASK_WINDOW_SECONDS = 3600.0
"""How long after the model asked a dispatch still counts as its answer."""

_DISPATCH_TOLERANCE_SECONDS = 1.0


def find_asking_step(
    index: StateIndex, fact: Fact, *, trajectory_id: str | None
) -> tuple[StepNode, PendingCall] | None:
    """Return the latest step that asked for this tool with these arguments and waits for it.

    Some clients run a tool while the model's answer is still streaming.

    Args:
        index: where to look.
        fact: the dispatch.
        trajectory_id: the only trajectory to look in; None looks in all of the scope.
    """
    started = fact.started
    candidates = [
        (step, pending)
        for step, pending in index.arguments(fact.arguments)
        if fact.name in pending.names
        and (trajectory_id is None or step.trajectory_id == trajectory_id)
        and step.started <= started + _DISPATCH_TOLERANCE_SECONDS
        and started - step.ended <= ASK_WINDOW_SECONDS
    ]
    for step, _ in candidates:
        index.touch(step.trajectory_id)
    fact.is_quiet = len(candidates) == 1 and _asked_before(index, fact, candidates[0][0])
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    served = index.served(fact.server)

    def likeliness(
        item: tuple[StepNode, PendingCall],
    ) -> tuple[bool, bool, bool, bool, bool, float, str, str]:
        step, pending = item
        heard = index.result_of(pending.call)
        return (
            heard == fact.result,
            heard is None,
            step.trajectory_id in served,
            not index.state.trajectories[step.trajectory_id].servers,
            step.ended <= started,
            step.ended,
            step.step_id,
            pending.call,
        )

    return max(candidates, key=likeliness)


def _asked_before(index: StateIndex, fact: Fact, step: StepNode) -> bool:
    asking = index.by_step.get(step.step_id)
    return asking is not None and asking.order < fact.order


def settle(index: StateIndex, fact: Fact, parent: StepNode) -> None:
    """Write down that what the parent asked for has its results here, and all older asking too."""
    parent_of_parent = index.steps.get(parent.parent_id or "")
    if parent_of_parent is not None and parent_of_parent.pending:
        index.tell(parent_of_parent, parent_of_parent.pending, fact.started)
    if not parent.pending:
        return
    told = {call for call, _ in fact.told}
    asked = [item for item in parent.pending if item.call in told]
    index.tell(parent, asked, fact.started)
