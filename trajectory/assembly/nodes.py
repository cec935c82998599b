"""What assembly remembers of trajectories and steps: keyed hashes, identifiers, counters and times."""

from binascii import a2b_base64, b2a_base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakValueDictionary


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
    told: float = 0.0
    """When the model was told a result; 0 while the call waits."""


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
    dialogue: str | None
    """Short hash of the provider's conversation that this turn belongs to."""
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

    @property
    def is_open(self) -> bool:
        """Tell whether something may still go on from here, or is waited for."""
        waits = any(not item.told for item in self.pending)
        return waits or (self.children == 0 and not self.claimed)

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
    place: str = ""
    """Short hash of tenant, application and environment; empty in states of older versions."""
    steps: list[StepNode] = field(default_factory=list)
    settled: bool = False
    """Facts of it have gone: what comes late is put to it as it stands."""


class Clue(NamedTuple):
    """What a call or a message shows by itself of how a step went (see ``signals``)."""

    rule: str
    value: float
    confidence: float | None = None
    """Overrides the rule's own confidence."""
    label: str | None = None
    """A fixed word."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class ChainNode:
    """One message at its place after all messages before it; calls that share a prefix share nodes."""

    loose: bytes
    """Chain over loose hashes up to here."""
    exact: bytes
    before: "ChainNode | None"
    """None at the seed, which stands for the scope."""
    position: int
    """How many messages lead to here."""
    is_turn: bool
    """The message is the model's."""
    calls: tuple[str, ...]
    """Short hashes of the ids of the tool calls in the message."""
    results: int = 0
    """How many tool results the messages up to here hold."""
    clues: tuple[Clue, ...] | None = None
    """What the message shows of how a step went; None until somebody looks."""
    key: str = ""
    """The loose chain in the form in which the state keeps it."""

    def __post_init__(self) -> None:
        self.key = shorten(self.loose)

    def back(self) -> Iterator["ChainNode"]:
        """Yield this node and all before it, without the seed."""
        node: ChainNode | None = self
        while node is not None and node.before is not None:
            yield node
            node = node.before

    def at(self, position: int) -> "ChainNode | None":
        """Return the node at a position; None beyond the end."""
        if position > self.position:
            return None
        node = self
        while node.position > position and node.before is not None:
            node = node.before
        return node


type Chains = WeakValueDictionary[bytes, ChainNode]
"""Every node that a remembered call stands on, by its exact hash."""


def shorten(digest: bytes) -> str:
    """Return a digest in the form in which the state keeps it."""
    return b2a_base64(digest, newline=False).decode("ascii")


def lengthen(short: str) -> bytes:
    """Return the digest that :func:`shorten` shortened."""
    return a2b_base64(short)
