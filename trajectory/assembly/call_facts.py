"""Facts: all that assembly needs to know of a call, as keyed hashes, counters and times.

A fact is made once from the raw call and is all that decides. It is kept as long as its trajectory is
remembered. So a late call can be placed as if it had come in order. It holds no content.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from trajectory.assembly.nodes import ChainNode, PendingCall
from trajectory.call import Call
from trajectory.canonical import JsonObject


@dataclass(frozen=True, slots=True)
class Placement:
    """What was decided about a call."""

    trajectory_id: str
    step_index: int
    parent_step_id: str | None
    branch: int
    role: str
    key_source: str
    keep: int
    """Leading messages of the parent's conversation that the call resends exactly."""
    skip: int
    """Leading messages of the call's own context that it therefore does not store."""
    retry_of: str | None = None
    duplicate_of: str | None = None
    session_hint: str | None = None
    group_id: str | None = None
    side_effect: str | None = None
    is_replaced: bool = field(default=False, compare=False)
    """The client went on from another text than the parent's answer."""
    is_delta: bool = field(default=False, compare=False)
    """The client sent only what is new."""


@dataclass(frozen=True, slots=True)
class LinkFact:
    """A link that ends at a fact's step."""

    kind: str
    from_step_id: str
    trajectory_id: str
    key_source: str
    recorded_at: float


@dataclass(slots=True, eq=False)
class Fact:
    """One call as assembly sees it."""

    exchange: str
    kind: str
    """``model``, ``tool`` (a dispatch) or ``tools`` (a listing of tools)."""
    started: float
    ended: float
    turn: float
    """When it is placed, seconds since 1970; the exchange's id tells equal turns apart."""
    tenant: str = ""
    """Short hash of the tenant."""
    scope: str = ""
    """Short hash of tenant, application and key: inference never looks beyond it."""
    place: str = ""
    """Short hash of tenant, application and environment: names of sessions hold within it."""
    sessions: Sequence[list[str]] = ()
    """Source and short hash of each session name, strongest first."""
    server: str | None = None
    """Short hash of the tool session."""
    previous: str | None = None
    """Short hash of the response that the client names as the one before."""
    dialogue: str | None = None
    """Short hash of the conversation at the provider that the call goes on with."""
    is_queued: bool = False
    """A look-up brings its answer."""
    is_look_up: bool = False
    """It asks for an answer whose question another call sent."""
    is_helper: bool = False
    """The client says that a sub-agent makes this call."""
    is_handed_over: bool = False
    """The model's last turn in its context handed the conversation over to another agent."""
    above: Sequence[str] = ()
    """Short hashes of the session that the client names as the one that started this one."""
    hint: str | None = None
    """Public keyed hash of the strongest session name."""
    group: str | None = None
    """Public keyed hash of the group or task that the client named."""
    task: str | None = None
    """Public keyed hash of the words before the model's first turn."""
    system: str = ""
    """Hash of the leading system messages; empty without any."""
    system_count: int = 0
    head: ChainNode | None = None
    """The chain over the context after the system's messages; None for tools."""
    output: Sequence[str] = ()
    """Loose and exact hash of the answer; empty without one."""
    request: str = ""
    """Short hash of the request's bytes within the scope: an SDK repeats them unchanged."""
    has_tools: bool = False
    retry: int = -1
    """What the client says of its attempts; -1 when it says nothing."""
    failure: str = ""
    """Empty, ``cut`` (the stream or connection broke) or ``error`` (the provider refused)."""
    response: str | None = None
    pending: Sequence[PendingCall] = ()
    """The tool calls in the answer; never changed here."""
    calls: Sequence[str] = ()
    """Short hashes of the tool calls' ids that tell something: not those that a dialect counted."""
    told: Sequence[list[str]] = ()
    """What the newest messages tell the model of its tools: id of the call, hash of the result."""
    answer: Sequence[str] = ()
    """Sketch of an answer without tool calls."""
    opening: Sequence[list[str]] = ()
    """Name and sketch of each stretch of the opening words that others may quote."""
    words: int = 0
    names: Sequence[str] = ()
    """What the opening words hold that may be a quotation."""
    quoted: Sequence[str] = ()
    """What looks like ids of tool calls in the words."""
    arguments: str = ""
    name: str = ""
    result: str = ""
    """Of a dispatch: hashes of its arguments, its tool's name and its answer."""
    effect: str = ""
    """Of a dispatch: the side effect that the operator declared."""
    usual_effect: str = ""
    """Of a dispatch: the side effect when neither operator nor server say anything."""
    effect_name: str = ""
    listed: Sequence[list[str]] = ()
    """Of a listing: short hash of each tool and its side effect."""

    clues: Sequence[list[Any]] = ()
    """What the call shows of how a step went; see ``trajectory.assembly.signals``."""
    retold: int = 0
    """How often its signals were withdrawn and said anew."""

    stored: int = 0
    """Of a stored step: how many leading messages of its context it did not store."""
    stored_in: str = ""
    """The trajectory that the step was stored in."""

    call: Call | None = None
    """The raw call, while its batch is being placed."""
    step_id: str = ""
    trajectory_id: str = ""
    """The trajectory's id, if this call begins one."""
    look_closer: Callable[["Fact"], None] | None = None
    """Fills in what only a beginning needs; None once done, or when the raw call is gone."""
    placement: Placement | None = None
    links: tuple[LinkFact, ...] = ()
    reads: Sequence[str] = ()
    """The names under which it looked for others."""
    touched: Collection[str] = ()
    """The trajectories whose state it read or changed."""
    is_quiet: bool = False
    """A dispatch that only one step can have asked for: names alone say whom it concerns."""
    row: JsonObject | None = None
    """The fact in the state's JSON form, once it was written."""

    @property
    def order(self) -> tuple[float, str]:
        """When the fact is placed among others."""
        return self.turn, self.exchange

    @property
    def recorded_at(self) -> datetime:
        """When the call ended."""
        return datetime.fromtimestamp(self.ended, UTC)

    def closer(self) -> "Fact":
        """Return the fact with what only a beginning needs."""
        if self.look_closer is not None:
            self.look_closer(self)
            self.look_closer = None
        return self

    def fresh_pending(self) -> list[PendingCall]:
        """Return the tool calls in the answer, for a node to change."""
        return [replace(item) for item in self.pending]

    def decision(self) -> "PlacementDecision":
        """Return all that was decided, to be compared."""
        return self.placement, frozenset(self.links)

    def effect_on_others(self) -> tuple["PlacementDecision", frozenset[str], frozenset[str]]:
        """Return all of its placing that facts after it can notice."""
        return self.decision(), frozenset(self.touched), frozenset(self.reads)


type PlacementDecision = tuple[Placement | None, frozenset[LinkFact]]
"""All that is decided about a call."""
