"""The prefix graph's own memory: each message of each conversation once, as a link of hash chains."""

from binascii import a2b_base64, b2a_base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakValueDictionary


class Clue(NamedTuple):
    """What a call or a message shows by itself of how a step went (see ``clues``)."""

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
