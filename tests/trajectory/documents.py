"""Trajectories that the tests of schema and formats share."""

from dataclasses import replace

from tests.golden.trajectories.replay import load
from trajectory.call import CallKind, TokenCapture, Usage
from trajectory.dialects.registry import read_exchange
from trajectory.message import Message, TextPart, ToolCallPart, ToolResultPart
from trajectory.portable import PortableSignal, PortableStep, Trajectory, split_steps


def own_trajectory() -> Trajectory:
    """Return what a real client sent, with one step of trouble and one of exact tokens at its end."""
    last = [
        call for call in map(read_exchange, load("openai_chat")) if call.kind is CallKind.MODEL
    ][-1]
    assert last.output is not None
    steps, trailing = split_steps([*last.context, last.output])
    bad = PortableStep(
        observed=(Message("tool", (ToolResultPart("elsewhere", {"a": 1}, is_error=True),)),),
        output=Message("assistant", (ToolCallPart("c9", "f", "{broken", arguments_valid=False),)),
        signals=(PortableSignal("success", 0.0, source_kind="verifier", source="check"),),
    )
    rich = replace(
        steps[1],
        timestamp="2026-01-01T00:00:01.500000Z",
        ended_at="2026-01-01T00:00:02.000000Z",
        model="m-2",
        response_id="chatcmpl-7",
        finish_reason="stop",
        sampling={"temperature": 0.5},
        usage=Usage(12, 3, 0, 1),
        tokens=TokenCapture((1, 2), (7, 8, 9), (-0.5, -0.25, 0.0)),
        loss_mask=(True, True, False),
    )
    trailing = (*trailing, Message("user", (TextPart("thanks"),)))
    return Trajectory(
        (steps[0], rich, bad),
        trailing,
        trajectory_id="t-1",
        session_id="s-1",
        tools=last.tools,
        signals=(PortableSignal("reward", 0.5, label="fair", source_kind="judge"),),
    )
