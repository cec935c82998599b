"""Plays a recording: finds the recorded answer to each request, and where a run leaves the path."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from trajectory.canonical import JsonObject, JsonValue
from trajectory.message import Message
from trajectory.replay.difference import ReplayComparison, ReplayDivergence
from trajectory.replay.recording import RecordedAnswer, RecordedTool, TrajectoryRecording


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """How a replay went."""

    trajectory_id: str
    identical: bool
    """Every recorded step was asked for, and nothing else."""
    model_answers: int
    """Recorded answers served."""
    tool_answers: int
    unasked: tuple[str, ...]
    """Recorded steps that nobody asked for."""
    divergence: ReplayDivergence | None

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        return {
            "trajectory_id": self.trajectory_id,
            "identical": self.identical,
            "model_answers": self.model_answers,
            "tool_answers": self.tool_answers,
            "unasked": list(self.unasked),
            "divergence": None if self.divergence is None else self.divergence.to_json(),
        }


class Player:
    """Answers from a recording.

    Recorded answers are found by the conversation, tool answers by name and arguments, so that
    requests may come in any order; each is used once while another fits, then again (an SDK that
    repeats a request gets the same answer). Safe to call from several threads.
    """

    def __init__(
        self,
        recording: TrajectoryRecording,
        comparison: ReplayComparison,
        *,
        models: bool = True,
        tools: bool = True,
    ) -> None:
        """Play ``recording``; without ``models`` or ``tools`` those are answered by others."""
        self.recording = recording
        self._comparison = comparison
        self._models = models
        self._tools = tools
        self._lock = Lock()
        self._used: set[int] = set()
        self._used_tools: set[int] = set()
        self._model_answers = 0
        self._tool_answers = 0
        self._first: ReplayDivergence | None = None
        self._contexts = [comparison.plain(one.context) for one in recording.answers]

    def answer(self, context: Sequence[Message]) -> RecordedAnswer | ReplayDivergence:
        """Return the recorded answer to a conversation, or where it differs from the expected."""
        came = self._comparison.plain(context)
        with self._lock:
            fitting = [
                position
                for position, expected in enumerate(self._contexts)
                if len(expected) == len(came)
                and self._comparison.difference([*expected], [*came]) is None
            ]
            if not fitting:
                return self._leave(self._nearest(came))
            fresh = [position for position in fitting if position not in self._used]
            chosen = fresh[0] if fresh else fitting[-1]
            self._used.add(chosen)
            self._model_answers += 1
            return self.recording.answers[chosen]

    def tool(self, name: str, arguments: JsonValue) -> RecordedTool | ReplayDivergence:
        """Return the recorded answer of a tool, or how the call differs from the expected one."""
        with self._lock:
            fitting = [
                position
                for position, tool in enumerate(self.recording.tools)
                if tool.name == name
                and self._comparison.difference(tool.arguments, arguments) is None
            ]
            if not fitting:
                return self._leave(self._nearest_tool(name, arguments))
            fresh = [position for position in fitting if position not in self._used_tools]
            chosen = fresh[0] if fresh else fitting[-1]
            self._used_tools.add(chosen)
            self._tool_answers += 1
            return self.recording.tools[chosen]

    def earlier(self, response_id: str) -> tuple[Message, ...] | None:
        """Return the whole conversation that a response id ends, for clients that name it."""
        for one in self.recording.answers:
            if one.answer.response_id == response_id:
                return (*one.context, one.answer.message)
        return None

    @property
    def complete(self) -> bool:
        """Tell whether everything that can be asked for was asked for."""
        return not self._unasked()

    @property
    def diverged(self) -> bool:
        """Tell whether the run has left the recorded path."""
        return self._first is not None

    def report(self) -> ReplayReport:
        """Return how it went; a run that stopped early has diverged at its end."""
        with self._lock:
            unasked = self._unasked()
            first = self._first
            if first is None and unasked:
                first = self._ended(unasked[0])
            return ReplayReport(
                trajectory_id=self.recording.trajectory_id,
                identical=first is None,
                model_answers=self._model_answers,
                tool_answers=self._tool_answers,
                unasked=tuple(unasked),
                divergence=first,
            )

    def _unasked(self) -> list[str]:
        answers = [
            one.step_id
            for position, one in enumerate(self.recording.answers)
            if self._models and position not in self._used
        ]
        tools = [
            one.step_id
            for position, one in enumerate(self.recording.tools)
            if self._tools and one.on_wire and position not in self._used_tools
        ]
        return [*answers, *tools]

    def _ended(self, step_id: str) -> ReplayDivergence:
        index = next((a.step_index for a in self.recording.answers if a.step_id == step_id), None)
        return ReplayDivergence("ended", step_id, index, "", "a request for this step", "(nothing)")

    def _leave(self, divergence: ReplayDivergence) -> ReplayDivergence:
        self._first = self._first or divergence
        return divergence

    def _nearest(self, came: list[JsonValue]) -> ReplayDivergence:
        """Compare with the answer not asked for yet whose conversation is alike the longest."""
        best: tuple[tuple[int, int], RecordedAnswer, tuple[str, JsonValue, JsonValue]] | None = None
        for position, one in enumerate(self.recording.answers):
            if position in self._used:
                continue
            expected = self._contexts[position]
            found = self._comparison.difference([*expected], [*came], "messages")
            if found is None:
                continue
            alike = 0
            for mine, theirs in zip(expected, came, strict=False):
                if self._comparison.difference(mine, theirs) is not None:
                    break
                alike += 1
            rank = (alike, -position)
            if best is None or rank > best[0]:
                best = (rank, one, found)
        if best is None:
            return ReplayDivergence(
                "model", None, None, "messages", "no further request", came[-1:]
            )
        _, one, (where, expected_value, came_value) = best
        return ReplayDivergence(
            "model", one.step_id, one.step_index, where, expected_value, came_value
        )

    def _nearest_tool(self, name: str, arguments: JsonValue) -> ReplayDivergence:
        """Compare with a call not made yet: of the same tool, else the next one."""
        came: JsonObject = {"name": name, "arguments": arguments}
        rest = [
            tool
            for position, tool in enumerate(self.recording.tools)
            if position not in self._used_tools
        ]
        same = [tool for tool in rest if tool.name == name]
        if not rest:
            return ReplayDivergence("tool", None, None, "", "no further tool call", came)
        expected = (same or rest)[0]
        wanted: JsonObject = {"name": expected.name, "arguments": expected.arguments}
        found = self._comparison.difference(wanted, came)
        where, left, right = found or ("", wanted, came)
        return ReplayDivergence("tool", expected.step_id, None, where, left, right)
