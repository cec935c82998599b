"""Finding the step that a model call goes on from, and the failed attempt that it repeats."""

from collections.abc import Iterable
from dataclasses import dataclass

from trajectory.assembly.fingerprint import CallPrint, Fingerprinter, shorten
from trajectory.assembly.index import StateIndex
from trajectory.assembly.state import StepNode
from trajectory.call import Call

RETRY_WINDOW_SECONDS = 900.0
"""How long after a failed attempt the same context still counts as its repetition."""

_SDK_RETRY_SECONDS = 60.0
"""An SDK that repeats by itself does so within this time."""

_FIRST_PAUSE_SECONDS = 0.44
"""How long the SDKs of OpenAI and Anthropic usually wait before their first repetition."""

_CLOCK_TOLERANCE_SECONDS = 0.5
"""An end may be written this much after the client went on."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about one model call."""

    call: Call
    print: CallPrint
    started: float
    retry: int
    """What the client says of its attempts; -1 when it says nothing."""
    scope: str
    trajectory_id: str | None
    """The only trajectory to look in; None looks in all of the scope."""

    def fits(self, step: StepNode) -> bool:
        """Tell whether a step may be the parent or an earlier attempt."""
        return self.is_inside(step) and step.started <= self.started

    def is_inside(self, step: StepNode) -> bool:
        """Tell whether a step is where the call may belong."""
        return self.trajectory_id is None or step.trajectory_id == self.trajectory_id


def find_parent(index: StateIndex, maker: Fingerprinter, question: Question) -> StepNode | None:
    """Return the step whose conversation the call extends; None for a beginning.

    Asked in order: a step whose whole conversation leads the context, with no turn of the model
    after it; the step that made the tool calls in the context's last turn (the client may have
    changed or cut what stands before); a step whose context leads this one (the client edited
    the answer); at last the longest conversation, a fork further back.
    """
    found, position = _longest(index.by_conversation, question)
    turns = _turn_positions(question)
    last_turn = turns[-1] if turns else -1
    if found is not None and position > last_turn:
        return found
    if asked := _by_tool_calls(index, maker, question, turns):
        return asked
    edited, edited_position = _longest(index.by_context, question, usable=True, proper=True)
    if edited is not None and edited_position > position and _is_telling(turns, edited_position):
        return edited
    if found is None and edited is not None and _is_alone(index, question, edited):
        return edited
    return found


def _turn_positions(question: Question) -> list[int]:
    context = question.call.context[question.print.system_count :]
    return [position for position, message in enumerate(context) if message.role == "assistant"]


def _is_telling(turns: list[int], position: int) -> bool:
    """Tell whether the leading messages hold a turn of the model: others may open alike."""
    return bool(turns) and turns[0] < position


def _is_alone(index: StateIndex, question: Question, step: StepNode) -> bool:
    """Tell whether no other session opened with this context and waits for its next call."""
    open_steps = [
        other
        for other in index.by_context.get(step.context, [])
        if question.fits(other) and other.children == 0 and not other.failure
    ]
    return open_steps == [step]


def _longest(
    index: dict[str, list[StepNode]],
    question: Question,
    *,
    usable: bool = False,
    proper: bool = False,
) -> tuple[StepNode | None, int]:
    chain = question.print.loose
    for position in range(len(chain) - (2 if proper else 1), 0, -1):
        steps = index.get(shorten(chain[position]))
        if not steps:
            continue
        fitting = (step for step in steps if question.fits(step) and not (usable and step.failure))
        if best := _most_likely(question, fitting):
            return best, position
    return None, -1


def _most_likely(question: Question, steps: Iterable[StepNode]) -> StepNode | None:
    """Return a step that had ended and that nothing goes on from yet, the latest such one."""
    latest = question.started + _CLOCK_TOLERANCE_SECONDS
    return max(
        steps,
        key=lambda step: (step.ended <= latest, step.children == 0, step.ended, step.step_id),
        default=None,
    )


def _by_tool_calls(
    index: StateIndex, maker: Fingerprinter, question: Question, turns: list[int]
) -> StepNode | None:
    context = question.call.context[question.print.system_count :]
    for position in reversed(turns):
        calls = context[position].tool_calls()
        for call in calls:
            if not call.call_id:
                continue
            name = maker.short("call", question.scope, call.call_id)
            fitting = [step for step in index.by_call.get(name, []) if question.fits(step)]
            if len(fitting) == 1 or (fitting and question.trajectory_id is not None):
                return _most_likely(question, fitting)
        if calls:
            return None
    return None


def find_failed_attempt(
    index: StateIndex, question: Question, parent: StepNode | None
) -> StepNode | None:
    """Return the failed attempt at the same context that this call repeats.

    An SDK that counts its attempts says which one it repeats. Without a count the nearest
    unclaimed failure is taken, but not one that its own SDK is about to repeat.
    """
    candidates = [
        step
        for step in _same_context(index, question, parent)
        if step.failure
        and question.fits(step)
        and not step.claimed
        and question.started - step.ended <= RETRY_WINDOW_SECONDS
        and _may_repeat(question, step)
    ]
    return max(candidates, key=lambda step: _likeliness(question, step), default=None)


def _likeliness(question: Question, step: StepNode) -> tuple[bool, bool, bool, float, str]:
    """Order failed attempts: the same bytes, the count before, a cut, the usual pause."""
    waited = question.started - step.ended
    usual = _FIRST_PAUSE_SECONDS * 2 ** min(question.retry - 1, 4) if question.retry > 0 else 0.0
    return (
        step.request == question.print.request,
        step.retry == question.retry - 1,
        step.failure == "cut",
        -abs(waited - usual),
        step.step_id,
    )


def _may_repeat(question: Question, step: StepNode) -> bool:
    if step.ended > question.started + _CLOCK_TOLERANCE_SECONDS:
        return False
    if question.retry > 0:
        return step.retry < question.retry and step.request == question.print.request
    if step.parent_id is None and step.request != question.print.request:
        return False  # another session may open with the same words in another way
    if step.failure == "cut" or step.retry != 0:
        return True
    return question.started - step.ended > _SDK_RETRY_SECONDS


def find_unseen_answer(
    index: StateIndex, question: Question, parent: StepNode | None, response: str | None
) -> StepNode | None:
    """Return the attempt that was answered in full although the client asks again.

    Either the SDK counts a repetition, or the very same response came twice. Of these the one
    stored before may have begun later: the span around a call begins before its request.
    """

    def matches(step: StepNode) -> bool:
        if response is not None and step.response == response:
            return True
        if step.started > question.started:
            return False
        repeated = question.retry > 0 and step.retry == question.retry - 1
        return repeated and step.children == 0 and step.request == question.print.request

    candidates = [
        step
        for step in _same_context(index, question, parent)
        if not step.failure
        and question.started - step.ended <= RETRY_WINDOW_SECONDS
        and matches(step)
    ]
    return max(candidates, key=lambda step: (step.ended, step.step_id), default=None)


def _same_context(index: StateIndex, question: Question, parent: StepNode | None) -> list[StepNode]:
    parent_id = None if parent is None else parent.step_id
    steps = index.by_context.get(shorten(question.print.loose[-1]), [])
    return [step for step in steps if question.is_inside(step) and step.parent_id == parent_id]
