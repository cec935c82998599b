"""Joining a tool's execution, seen on the wire, to the model step that asked for it."""

from collections.abc import Callable, Iterable, Mapping

from trajectory.assembly.fingerprint import Fingerprinter, result_text
from trajectory.assembly.index import StateIndex
from trajectory.assembly.sketches import argument_text, sketch
from trajectory.assembly.state import PendingCall, StepNode
from trajectory.call import Call, ToolDispatch
from trajectory.canonical import JsonValue
from trajectory.message import Message, ToolCallPart, ToolResultPart

ASK_WINDOW_SECONDS = 3600.0
"""How long after the model asked a dispatch still counts as its answer."""

_CLOCK_TOLERANCE_SECONDS = 1.0
_ENDINGS_LIMIT = 6
_SEPARATORS = "_-./:"


def pending_calls(maker: Fingerprinter, output: Message | None, scope: str) -> list[PendingCall]:
    """Return what a step asks for, as the state keeps it."""
    if output is None:
        return []
    return [_pending(maker, part, scope) for part in output.tool_calls()]


def _pending(maker: Fingerprinter, part: ToolCallPart, scope: str) -> PendingCall:
    return PendingCall(
        call=maker.short("call", scope, part.call_id),
        arguments=maker.short_json("arguments", part.arguments, scope),
        names=[maker.short("tool", scope, name) for name in _endings(part.name)],
        orders=sketch(maker, scope, argument_text(part.arguments)),
    )


def _endings(name: str) -> list[str]:
    """Return the name and its endings after a separator (clients write ``mcp__server__tool``)."""
    endings = [name]
    for position, character in enumerate(name):
        if character in _SEPARATORS and name[position + 1 : position + 2].isalnum():
            endings.append(name[position + 1 :])
    return endings[:_ENDINGS_LIMIT]


def find_asking_step(
    index: StateIndex,
    maker: Fingerprinter,
    dispatch: ToolDispatch,
    *,
    scope: str,
    started: float,
    trajectory_id: str | None,
    served: set[str],
    told: Mapping[str, str],
) -> tuple[StepNode, PendingCall] | None:
    """Return the latest step that asked for this tool with these arguments and waits for it.

    Some clients run a tool while the model's answer is still streaming.

    Args:
        index: where to look.
        maker: makes the hashes.
        dispatch: what was executed.
        scope: tenant, application and key.
        started: when the dispatch started.
        trajectory_id: the only trajectory to look in; None looks in all of the scope.
        served: trajectories that this tool session served before; they go first.
        told: what this batch's models were told later, hash of the result by hash of the call id.
    """
    arguments = maker.short_json("arguments", dispatch.arguments, scope)
    name = maker.short("tool", scope, dispatch.name)
    candidates = [
        (step, pending)
        for step, pending in index.by_arguments.get(arguments, [])
        if name in pending.names
        and (trajectory_id is None or step.trajectory_id == trajectory_id)
        and step.started <= started + _CLOCK_TOLERANCE_SECONDS
        and started - step.ended <= ASK_WINDOW_SECONDS
    ]
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    answer = result_name(maker, _result_content(dispatch))

    def likeliness(
        item: tuple[StepNode, PendingCall],
    ) -> tuple[bool, bool, bool, bool, bool, float, str]:
        step, pending = item
        heard = told.get(pending.call)
        return (
            heard == answer,
            heard is None,
            step.trajectory_id in served,
            not index.state.trajectories[step.trajectory_id].servers,
            step.ended <= started,
            step.ended,
            step.step_id,
        )

    return max(candidates, key=likeliness)


def _result_content(dispatch: ToolDispatch) -> JsonValue:
    result = dispatch.result
    return result["content"] if isinstance(result, dict) and "content" in result else result


def result_name(maker: Fingerprinter, content: JsonValue) -> str:
    """Return the hash by which a tool's answer is compared with what the model was told."""
    return maker.short("result", result_text(content).strip())


def told_results(
    maker: Fingerprinter, calls: Iterable[Call], scope_of: Callable[[Call], str]
) -> dict[str, str]:
    """Return what models were told in their newest messages, by the call's id."""
    told: dict[str, str] = {}
    for call in calls:
        for message in reversed(call.context):
            if message.role == "assistant":
                break
            for part in message.parts:
                if isinstance(part, ToolResultPart):
                    name = maker.short("call", scope_of(call), part.call_id)
                    told.setdefault(name, result_name(maker, part.content))
    return told


def settle(index: StateIndex, maker: Fingerprinter, call: Call, parent: StepNode) -> None:
    """Forget what the parent asked for when the call brings the results, and all older asking."""
    parent_of_parent = index.steps.get(parent.parent_id or "")
    if parent_of_parent is not None and parent_of_parent.pending:
        index.drop_pending(parent_of_parent, parent_of_parent.pending)
    if not parent.pending:
        return
    scope = index.state.trajectories[parent.trajectory_id].scope
    told = {
        maker.short("call", scope, part.call_id)
        for message in call.context
        for part in message.parts
        if isinstance(part, ToolResultPart)
    }
    index.drop_pending(parent, [item for item in parent.pending if item.call in told])
