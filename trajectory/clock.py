"""A clock that leapt: what is removed by a wrong clock never comes back, so a leap is waited out.

Whoever removes by age notes when it last did. A clock that is a month ahead of that note is probably
wrong: few machines are off so long. It counts once it has run on from there for a day.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from trajectory.files import replace_file

LEAP = timedelta(days=30)
"""A longer gap between two rounds means a wrong clock rather than a machine that was off."""
SURE = timedelta(days=1)
"""So long a clock that leapt has to go on before anything is removed by it."""


@dataclass(frozen=True, slots=True)
class RoundClock:
    """The clock as rounds of removals in one folder have seen it."""

    folder: Path

    @property
    def _done(self) -> Path:
        return self.folder / "swept-at"

    @property
    def _leapt(self) -> Path:
        return self.folder / "clock-leapt-at"

    def since(self) -> timedelta:
        """Return how long ago the last round was done; very long where none is known.

        Less than nothing where the clock was set back since.
        """
        return _age(self._done)

    def leap(self) -> timedelta | None:
        """Return how far the clock leapt since the last round; None where it can be believed.

        Raises:
            OSError: the leap cannot be noted.
        """
        since = self.since()
        if since == timedelta.max or since < LEAP:
            self._leapt.unlink(missing_ok=True)
            return None
        gone_on = _age(self._leapt)
        if SURE <= gone_on < LEAP:
            return None
        if not timedelta(0) <= gone_on < SURE:
            replace_file(self._leapt, datetime.now(UTC).isoformat().encode())
        return since

    def done(self) -> None:
        """Note that a round was done now, and so that the clock is believed."""
        replace_file(self._done, datetime.now(UTC).isoformat().encode())
        self._leapt.unlink(missing_ok=True)


def _age(note: Path) -> timedelta:
    """Return how long ago the time in a file was; very long without a file or a whole time in it."""
    try:
        return datetime.now(UTC) - datetime.fromisoformat(note.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError, TypeError):  # a day alone, say, has no zone
        return timedelta.max
