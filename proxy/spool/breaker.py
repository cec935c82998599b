"""The breaker: after the disk has refused or dawdled, nothing is tried for a while."""

import time
from collections import Counter

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 30.0


class Breaker:
    """Opens for a second, then twice as long each time in a row, up to half a minute.

    ``ENOSPC``, ``EIO`` and whatever else a disk says, and a disk that takes too long, all come
    here; :attr:`failures` counts them by their name.
    """

    __slots__ = ("_pause", "_until", "failures", "reason", "slow_seconds", "tripped")

    def __init__(self, slow_seconds: float) -> None:
        self.slow_seconds = slow_seconds
        self.failures: Counter[str] = Counter()
        self._pause = FIRST_SECONDS
        self._until = 0.0
        self.tripped = False
        """It has opened since the disk last worked."""
        self.reason = ""
        """What it opened for last."""

    @property
    def open(self) -> bool:
        """Whether nothing should be tried now."""
        return self.tripped and time.monotonic() < self._until

    def trip(self, reason: str) -> None:
        """Count a failure and open."""
        self.failures[reason] += 1
        self.reason = reason
        self._until = time.monotonic() + self._pause
        self.tripped = True
        self._pause = min(2 * self._pause, LONGEST_SECONDS)

    def mend(self) -> None:
        """Close: the disk works."""
        self._until, self._pause, self.tripped = 0.0, FIRST_SECONDS, False
