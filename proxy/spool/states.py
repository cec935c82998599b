"""Bounds of a spool, and whether it accepts records."""

from dataclasses import dataclass
from enum import StrEnum

from trajectory.errors import RetryableError


class SpoolUnavailableError(RetryableError):
    """The spool cannot take a record now: the disk refused it, or the spool is full."""


class SpoolState(StrEnum):
    """Whether the spool takes records."""

    OPEN = "open"
    SHEDDING = "shedding"
    """Near its bound: metadata yes, bodies only where capture is mandatory."""
    FULL = "full"
    FAILING = "failing"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a spool over all writers, and the shares at which it raises the alarm and sheds."""

    max_bytes: int = 8 * 1024 * 1024 * 1024
    max_files: int = 4096
    alarm_at: float = 0.7
    shed_at: float = 0.9

    @property
    def shed_bytes(self) -> int:
        """Bytes from which what can be spared is left out."""
        return int(self.max_bytes * self.shed_at)
