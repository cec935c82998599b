"""Joining tool dispatches, seen on their own wire, to the model step that asked for them."""

from trajectory.assembly.facts import Fact
from trajectory.assembly.index import StateIndex
from trajectory.assembly.nodes import PendingCall, StepNode

ASK_WINDOW_SECONDS = 3600.0
"""How long after the model asked a dispatch still counts as its answer."""

_CLOCK_TOLERANCE_SECONDS = 1.0


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
        and step.started <= started + _CLOCK_TOLERANCE_SECONDS
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
