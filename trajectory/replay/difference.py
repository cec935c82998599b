"""Comparing what was recorded with what comes now, and naming the first place where they differ.

Compared is what an agent decides: roles, texts without white space at their ends, tool calls with
parsed arguments, tool results. Reasoning is not sent back by every client, and system prompts are
often rendered anew at each call; neither decides.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from trajectory.assembly.fingerprint import result_text
from trajectory.canonical import JsonObject, JsonValue
from trajectory.message import MediaPart, Message, ToolResultPart

_SHOWN = 400
_MISSING = "(nothing)"


@dataclass(frozen=True, slots=True)
class ReplayDivergence:
    """The first place where a run left the recorded path."""

    kind: str
    """``model``: a conversation that no recorded answer fits; ``tool``: a call that was not
    recorded; ``ended``: the agent stopped before the recording did."""
    step_id: str | None
    """The recorded step that was expected next; None when the recording had ended."""
    step_index: int | None
    where: str
    """Path into the request, e.g. ``messages[3].tool_calls[0].arguments.quantity``."""
    expected: JsonValue = field(repr=False)
    came: JsonValue = field(repr=False)

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        return {
            "kind": self.kind,
            "step_id": self.step_id,
            "step_index": self.step_index,
            "where": self.where,
            "expected": self.expected,
            "came": self.came,
        }


class ReplayComparison:
    """Compares values; texts in the recording may hold marks where something was redacted."""

    def __init__(
        self, *, mark: re.Pattern[str] | None = None, blind_to_results: bool = False
    ) -> None:
        """Take what stands for redacted text, and whether tool results count."""
        self._mark = mark
        self._blind = blind_to_results

    def plain(self, context: Sequence[Message]) -> list[JsonValue]:
        """Return a conversation as what is compared."""
        return [
            self._message(message)
            for message in context
            if message.role not in ("system", "developer")
        ]

    def _message(self, message: Message) -> JsonObject:
        plain: JsonObject = {"role": message.role}
        if text := message.text().strip():
            plain["text"] = text
        if calls := message.tool_calls():
            plain["tool_calls"] = [
                {"id": call.call_id, "name": call.name, "arguments": call.arguments}
                for call in calls
            ]
        for part in message.parts:
            if isinstance(part, ToolResultPart):
                text = "" if self._blind else result_text(part.content).strip()
                plain["tool_result"] = {"id": part.call_id, "content": text}
            elif isinstance(part, MediaPart):
                plain["media"] = part.sha256 or part.url
        return plain

    def difference(
        self, expected: JsonValue, came: JsonValue, where: str = ""
    ) -> tuple[str, JsonValue, JsonValue] | None:
        """Return path and both values of the first difference; None when there is none."""
        if isinstance(expected, dict) and isinstance(came, dict):
            for name in dict.fromkeys((*expected, *came)):
                place = f"{where}.{name}" if where else name
                if name not in came or name not in expected:
                    return place, _at(expected, name), _at(came, name)
                if found := self.difference(expected[name], came[name], place):
                    return found
            return None
        if isinstance(expected, list) and isinstance(came, list):
            for position in range(max(len(expected), len(came))):
                place = f"{where}[{position}]"
                if position >= len(expected):
                    return place, _MISSING, shown(came[position])
                if position >= len(came):
                    return place, shown(expected[position]), _MISSING
                if found := self.difference(expected[position], came[position], place):
                    return found
            return None
        if isinstance(expected, str) and isinstance(came, str):
            return None if self._same_text(expected, came) else (where, *_around(expected, came))
        same = expected == came and isinstance(expected, bool) == isinstance(came, bool)
        return None if same else (where, shown(expected), shown(came))

    def _same_text(self, expected: str, came: str) -> bool:
        if expected == came:
            return True
        if self._mark is None or self._mark.search(expected) is None:
            return False
        pieces = [re.escape(piece) for piece in self._mark.split(expected)]
        return re.fullmatch(".{1,200}?".join(pieces), came, re.DOTALL) is not None


def _at(value: JsonObject, name: str) -> JsonValue:
    return shown(value[name]) if name in value else _MISSING


def shown(value: JsonValue) -> JsonValue:
    """Return a value short enough for a report."""
    if isinstance(value, str):
        return value if len(value) <= _SHOWN else value[:_SHOWN] + "…"
    if isinstance(value, list):
        return [shown(item) for item in value[:20]]
    if isinstance(value, dict):
        return {name: shown(item) for name, item in list(value.items())[:20]}
    return value


def _around(expected: str, came: str) -> tuple[str, str]:
    """Return both texts from a little before the place where they part."""
    at = next(
        (n for n, (a, b) in enumerate(zip(expected, came, strict=False)) if a != b),
        min(len(expected), len(came)),
    )
    start = max(0, at - 60)
    lead = "…" if start else ""
    return lead + str(shown(expected[start:])), lead + str(shown(came[start:]))
