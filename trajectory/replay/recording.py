"""What a replay can answer with: the recorded answers of models and tools of one trajectory."""

from dataclasses import dataclass, field

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.writer import ModelAnswer
from trajectory.message import Message


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """A model's answer, and the whole conversation that it answered."""

    step_id: str
    step_index: int
    context: tuple[Message, ...] = field(repr=False)
    answer: ModelAnswer


@dataclass(frozen=True, slots=True)
class RecordedTool:
    """What a tool answered to these arguments."""

    step_id: str
    """The tool's own step; the step that was told the result when the call was not on the wire."""
    name: str
    arguments: JsonValue = field(repr=False)
    result: JsonValue = field(repr=False)
    """An MCP result, ``{"content": […], "isError": …}``."""
    on_wire: bool = True
    """False: known only from what the model was told."""


@dataclass(frozen=True, slots=True)
class TrajectoryRecording:
    """One trajectory, ready to be played."""

    trajectory_id: str
    answers: tuple[RecordedAnswer, ...]
    tools: tuple[RecordedTool, ...]
    definitions: tuple[JsonObject, ...] = ()
    """Tools as MCP lists them: ``name``, ``description``, ``inputSchema``."""
