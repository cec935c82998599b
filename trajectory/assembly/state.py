"""What assembly remembers between batches: keyed hashes, identifiers, counters and times, no content.

Bounded twice: trajectories that rested longer than ``idle_seconds`` fall out, then the ones that
rested longest beyond ``max_trajectories``; of each trajectory the latest ``max_steps`` steps stay.
"""

from dataclasses import dataclass, field, fields
from typing import Any, cast

from trajectory.canonical import JsonObject, JsonValue
from trajectory.errors import IntegrityError

STATE_VERSION = 2


@dataclass(slots=True, eq=False)
class PendingCall:
    """A tool call that a model asked for and whose dispatch has not been seen."""

    call: str
    """Short hash of the call id."""
    arguments: str
    """Short hash of the canonical arguments within the scope."""
    names: list[str]
    """Short hashes of the tool's name and of its endings after a separator."""
    orders: list[str] = field(default_factory=list)
    """Sketch of the longest text in the arguments: what a sub-agent may be told."""


@dataclass(slots=True, eq=False)
class StepNode:
    """What is remembered of one model step."""

    step_id: str
    parent_id: str | None
    index: int
    children: int
    """Usable model steps that go on from here."""
    system: str
    system_count: int
    length: int
    """Messages of the context after the system's."""
    context: str
    exact_context: str | None
    """None when equal to ``context``."""
    conversation: str | None
    """Chain over context and output; None without an output."""
    exact_conversation: str | None
    output: str
    """Exact hash of the output; empty without one."""
    response: str | None
    started: float
    ended: float
    retry: int
    """What the client said of its attempts; -1 when it said nothing."""
    failure: str
    """Empty, ``cut`` (the stream or connection broke) or ``error`` (the provider refused)."""
    request: str
    """Short hash of the request's bytes: an SDK repeats them unchanged."""
    claimed: bool
    """A retry of this failed attempt has been found."""
    answer: list[str]
    """Sketch of an output without tool calls, while nothing goes on from it."""
    calls: list[str]
    """Short hashes of the ids of the tool calls in the output."""
    pending: list[PendingCall]
    trajectory_id: str = ""

    def exact_context_hash(self) -> str:
        """Return the exact chain over the context."""
        return self.context if self.exact_context is None else self.exact_context

    def exact_conversation_hash(self) -> str | None:
        """Return the exact chain over context and output."""
        return self.conversation if self.exact_conversation is None else self.exact_conversation


@dataclass(slots=True, eq=False)
class TrajectoryNode:
    """What is remembered of one trajectory."""

    trajectory_id: str
    tenant: str
    """Short hash of the tenant."""
    scope: str
    last_at: float
    roots: int
    """Usable model steps without a parent."""
    has_tools: bool
    group: str | None
    hint: str | None
    sessions: list[list[str]]
    """Pairs of a session name's source and its short hash."""
    servers: list[str]
    """Short hashes of the tool sessions whose dispatches were joined here."""
    started: float = 0.0
    answered: float = 0.0
    """When the first call ended."""
    system: str = ""
    """Hash of the system prompt of the agent's first call."""
    opening: list[list[str]] = field(default_factory=list)
    """Name and sketch of each stretch of the opening words that others may quote."""
    words: int = 0
    """How many words the opening has."""
    asides: list[str] = field(default_factory=list)
    """System prompts of the auxiliary calls that quoted the opening."""
    steps: list[StepNode] = field(default_factory=list)


@dataclass(slots=True)
class AssemblerState:
    """All that one assembler remembers; the same state and calls give the same assembly."""

    idle_seconds: float = 6 * 3600.0
    max_trajectories: int = 5_000
    max_steps: int = 64
    clock: float = 0.0
    """The latest start that was seen, seconds since 1970; idleness is measured against it."""
    trajectories: dict[str, TrajectoryNode] = field(default_factory=dict)
    effects: dict[str, str] = field(default_factory=dict)
    """What tool servers said of their tools, by short hash of server and name."""

    def to_json(self) -> JsonObject:
        """Return the state as JSON, steps as rows."""
        return {
            "version": STATE_VERSION,
            "idle_seconds": self.idle_seconds,
            "max_trajectories": self.max_trajectories,
            "max_steps": self.max_steps,
            "clock": self.clock,
            "effects": dict[str, JsonValue](self.effects),
            "trajectories": [_trajectory_row(node) for node in self.trajectories.values()],
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> "AssemblerState":
        """Build a state from :meth:`to_json`'s form; an empty object gives one with no memory.

        Raises:
            IntegrityError: the value is not such a state, or of another version.
        """
        if not value:
            return cls()
        version = value.get("version")
        if version not in (1, STATE_VERSION):
            raise IntegrityError(
                f"assembly state has version {value.get('version')!r}, this release reads"
                f" {STATE_VERSION}; delete the state to begin with no memory of open sessions"
            )
        try:
            state = cls(
                idle_seconds=float(cast(float, value["idle_seconds"])),
                max_trajectories=int(cast(int, value["max_trajectories"])),
                max_steps=int(cast(int, value["max_steps"])),
                clock=float(cast(float, value["clock"])),
                effects=dict(cast(dict[str, str], value.get("effects", {}))),
            )
            for row in cast(list[list[JsonValue]], value["trajectories"]):
                node = _trajectory_of(_first_version(row) if version == 1 else row)
                state.trajectories[node.trajectory_id] = node
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise IntegrityError(
                f"assembly state is damaged ({type(error).__name__}); delete it to begin with no"
                " memory of open sessions"
            ) from None
        return state


_STEP_FIELDS = tuple(item.name for item in fields(StepNode) if item.name != "trajectory_id")
_TRAJECTORY_FIELDS = tuple(item.name for item in fields(TrajectoryNode) if item.name != "steps")


def _trajectory_row(node: TrajectoryNode) -> list[JsonValue]:
    row = [_copied(getattr(node, name)) for name in _TRAJECTORY_FIELDS]
    return [*row, [_step_row(step) for step in node.steps]]


def _copied(value: Any) -> JsonValue:
    """Copy what later calls change in place."""
    if isinstance(value, list):
        return [_copied(item) for item in value]
    plain: JsonValue = value
    return plain


def _step_row(step: StepNode) -> list[JsonValue]:
    row: list[JsonValue] = [getattr(step, name) for name in _STEP_FIELDS]
    row[-1] = [
        [item.call, item.arguments, list[JsonValue](item.names), list[JsonValue](item.orders)]
        for item in step.pending
    ]
    return row


def _first_version(row: list[Any]) -> list[Any]:
    """Return a row of version 1, which had one sketch of the opening and no name for it."""
    at = _TRAJECTORY_FIELDS.index("opening")
    return [*row[:at], [["", *row[at]]] if row[at] else [], *row[at + 1 :]]


def _trajectory_of(row: list[Any]) -> TrajectoryNode:
    node = TrajectoryNode(*row[:-1])
    node.sessions = [list(pair) for pair in node.sessions]
    node.servers = list(node.servers)
    node.opening = [list(names) for names in node.opening]
    node.asides = list(node.asides)
    node.steps = [_step_of(values, node.trajectory_id) for values in row[-1]]
    return node


def _step_of(values: list[Any], trajectory_id: str) -> StepNode:
    if len(values) != len(_STEP_FIELDS):
        raise ValueError("a step has another number of fields")
    pending = [
        PendingCall(call, arguments, names, orders) for call, arguments, names, orders in values[-1]
    ]
    # Lists of a step are replaced, never changed in place, so they may be shared with the JSON.
    step: StepNode = _STEP(*values[:-1], pending, trajectory_id)
    return step


_STEP: Any = StepNode
