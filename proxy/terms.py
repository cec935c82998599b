"""Terms of a capture: how much is recorded, and what its route says of it."""

from enum import IntEnum
from typing import NamedTuple, Protocol


class Level(IntEnum):
    """How much of an exchange is recorded."""

    METADATA = 0
    """Heads and end only."""
    FULL = 1


class Terms(Protocol):
    """What a route says of its captures."""

    @property
    def mandatory(self) -> bool:
        """Bodies are recorded as long as the spool takes anything."""

    @property
    def durability(self) -> str:
        """``journal``, ``durable``, or ``batch``: records may wait in memory for others."""


class OwnTerms(NamedTuple):
    """Terms of captures that belong to no route."""

    mandatory: bool = False
    durability: str = "journal"


JOURNAL = OwnTerms()
