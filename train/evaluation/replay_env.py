"""An episode in the replayed tool environment: follows what was recorded, and tells where it leaves it.

While a model calls what some recorded attempt at its task called, it is answered as that attempt was,
in the attempt's order. The first call that no attempt made there is the first divergence; from then on
a call is answered from what was recorded elsewhere, by tool and canonical arguments, or is a miss.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from train.chat import ChatMessage
from train.evaluation.environment import RecordedCall, RecordedTools, canonical

type DivergenceKind = Literal["tool", "arguments", "further_call", "answered_early"]


@dataclass(frozen=True, slots=True)
class RecordedPath:
    """An agent's recorded attempt at a task, up to its answer."""

    turns: tuple[tuple[RecordedCall, ...], ...]
    """The calls of each of its messages; calls of one message may be answered in any order."""
    answer: str | None = field(repr=False)
    """Its last words; None when it never came to them, or somebody spoke to it again."""
    rewarded: bool


@dataclass(frozen=True, slots=True)
class DivergentCall:
    """First call of a model that no recorded attempt made."""

    call: int
    """How many calls it had made before."""
    kind: DivergenceKind
    """tool: another tool; arguments: the same tool, asked otherwise; further_call: the record had
    ended; answered_early: the record went on to call."""
    tool: str | None = None
    """What the record called there. What the model made up stands nowhere: it may hold anything."""
    arguments: tuple[str, ...] = ()
    """Names of the recorded arguments that differ; their values stay in the record."""


def recorded_path(messages: Sequence[ChatMessage], *, rewarded: bool) -> RecordedPath | None:
    """Read what followed a task's beginning; None when a call was never answered."""
    turns: list[tuple[RecordedCall, ...]] = []
    place = 0
    while place < len(messages) and messages[place]["role"] == "assistant":
        calls = messages[place].get("tool_calls", ())
        if not calls:
            alone = place + 1 == len(messages)
            return RecordedPath(
                tuple(turns), messages[place]["content"] if alone else None, rewarded
            )
        answers = messages[place + 1 : place + 1 + len(calls)]
        if len(answers) < len(calls) or any(answer["role"] != "tool" for answer in answers):
            return None
        turns.append(_answered(calls, answers))
        place += 1 + len(calls)
    return RecordedPath(tuple(turns), None, rewarded)


def _answered(
    calls: Sequence[Mapping[str, Any]], answers: Sequence[ChatMessage]
) -> tuple[RecordedCall, ...]:
    by_id = {answer.get("tool_call_id"): answer for answer in answers}
    return tuple(
        RecordedCall(
            call["function"]["name"],
            canonical(call["function"]["arguments"]),
            by_id.get(call["id"], answer)["content"],
        )
        for call, answer in zip(calls, answers, strict=True)
    )


@dataclass(slots=True)
class _Track:
    """A recorded attempt that the model has followed so far."""

    path: RecordedPath
    turn: int = 0
    answered: frozenset[int] = frozenset()
    """Calls of this turn that the model made already."""

    def next_calls(self) -> list[tuple[int, RecordedCall]]:
        """Return the calls that the attempt made here."""
        if self.turn >= len(self.path.turns):
            return []
        calls = enumerate(self.path.turns[self.turn])
        return [(place, call) for place, call in calls if place not in self.answered]

    def follow(self, tool: str, arguments: str) -> tuple["_Track", str] | None:
        """Return the attempt after this call, and its answer; None when it did not make it here."""
        for place, call in self.next_calls():
            if (call.tool, call.arguments) == (tool, arguments):
                answered = self.answered | {place}
                if len(answered) == len(self.path.turns[self.turn]):
                    return _Track(self.path, self.turn + 1), call.answer
                return _Track(self.path, self.turn, answered), call.answer
        return None


class Follower:
    """The tools of one episode."""

    def __init__(
        self,
        paths: Sequence[RecordedPath],
        recorded: RecordedTools,
        *,
        tenant: str,
        names: Collection[str] | None = None,
    ) -> None:
        """Begin an episode.

        Args:
            paths: what was recorded at its task.
            recorded: what answers once no path is followed.
            tenant: whose task it is.
            names: of the tools that there are; a call of another is answered with an error, as in
                training. None: whoever calls looks after it.
        """
        self._tracks = [_Track(path) for path in sorted(paths, key=lambda path: not path.rewarded)]
        self._recorded = recorded
        self._tenant = tenant
        self._names = names
        self.calls = 0
        self.diverged: DivergentCall | None = None

    def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Answer a call.

        Raises:
            MissedCallError: nobody ever asked this.
        """
        asked = canonical(dict(arguments))
        followed = [found for track in self._tracks if (found := track.follow(tool, asked))]
        if not followed and self.diverged is None:
            self.diverged = self._divergence(tool, arguments)
        self._tracks = [track for track, _ in followed]
        self.calls += 1
        if followed:
            return followed[0][1]
        if self._names is not None and tool not in self._names:
            return str({"error": f"Tool {tool} not found."})
        return self._recorded.answer(self._tenant, tool, arguments)

    def close(self) -> None:
        """Take note that the model gave its answer."""
        if self.diverged is None and all(track.next_calls() for track in self._tracks):
            self.diverged = DivergentCall(self.calls, "answered_early")

    def _divergence(self, tool: str, arguments: Mapping[str, Any]) -> DivergentCall:
        expected = [call for track in self._tracks for _, call in track.next_calls()]
        if not expected:
            return DivergentCall(self.calls, "further_call")
        same = next((call for call in expected if call.tool == tool), None)
        if same is None:
            return DivergentCall(self.calls, "tool", expected[0].tool)
        return DivergentCall(self.calls, "arguments", tool, _different(same.arguments, arguments))


def _different(recorded: str, asked: Mapping[str, Any]) -> tuple[str, ...]:
    known = json.loads(recorded)
    if not isinstance(known, dict):
        return ()
    return tuple(sorted(name for name in known if name not in asked or known[name] != asked[name]))
