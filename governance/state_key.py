"""What a step acted on: the redacted messages since the model last spoke, as a name for the state.

Two attempts at one task stand in the same state when they were shown the same: same tool answers,
same words. Ids of tool calls differ between attempts and say nothing, so they are left out.
"""

from collections.abc import Sequence

from governance.identifiers import Namer
from trajectory.canonical import JsonValue
from trajectory.message import Message, ToolResultPart, part_json, stored_message


def state_hash(namer: Namer, tenant_id: str, context: Sequence[Message]) -> str | None:
    """Return the name of the state; None when nothing was shown after the model's last word."""
    shown = context[_after_last_turn(context) :]
    if not shown:
        return None
    return namer.name(tenant_id, "state", [_without_call_ids(message) for message in shown])


def _after_last_turn(context: Sequence[Message]) -> int:
    for position in range(len(context) - 1, -1, -1):
        if context[position].role == "assistant":
            return position + 1
    return 0


def _without_call_ids(message: Message) -> JsonValue:
    parts: list[JsonValue] = [
        ["tool_result", part.content, part.is_error]
        if isinstance(part, ToolResultPart)
        else part_json(part)
        for part in message.parts
    ]
    return stored_message(message.role, parts, message.name)
