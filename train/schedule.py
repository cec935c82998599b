"""When a schedule is due: pure functions of the document, what was done before, and the clock."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from cronsim import CronSim

from train.schedule_spec import ScheduleSpec

LATE = timedelta(minutes=5)
"""A night that begins later than this after its time was missed, not merely slow to begin."""


@dataclass(frozen=True, slots=True)
class Due:
    """A night that should begin now."""

    at: datetime
    """Its time by the schedule, UTC."""
    missed: int
    """Earlier nights that were missed since the last one that was looked after."""
    late: bool


@dataclass(frozen=True, slots=True)
class Skipped:
    """Nights that passed unlooked-after and are not made up for."""

    last: datetime
    nights: int


def occurrences(spec: ScheduleSpec, after: datetime) -> Iterator[datetime]:
    """Yield the times of the schedule after a moment, UTC; daylight saving as Debian's cron has it."""
    for moment in CronSim(spec.cron, after.astimezone(spec.zone)):
        yield moment.astimezone(UTC)


def next_time(spec: ScheduleSpec, after: datetime) -> datetime:
    """Return the first time of the schedule after a moment, UTC."""
    return next(occurrences(spec, after))


def due(
    spec: ScheduleSpec,
    *,
    looked_after: datetime,
    now: datetime,
    up_since: datetime | None = None,
) -> Due | Skipped | None:
    """Return what is due.

    Args:
        looked_after: time of the last night that was run, skipped or made up for; for a schedule
            that is new, when it was first seen, so that nothing before is made up for.
        now: the clock.
        up_since: since when somebody looks; a night whose time came after that waited its turn
            behind another schedule's, and was not missed.

    Returns:
        The latest night whose time has come; ``Skipped`` when it was missed and the schedule does
        not catch up; None when nothing is due.
    """
    passed = list(takewhile(lambda moment: moment <= now, occurrences(spec, looked_after)))
    if not passed:
        return None
    waited = up_since is not None and passed[-1] >= up_since
    late = now - passed[-1] > LATE and not waited
    if late and not spec.catch_up:
        return Skipped(passed[-1], len(passed))
    return Due(at=passed[-1], missed=len(passed) - 1 + late, late=late)


def unmet(spec: ScheduleSpec, *, now: datetime, gpu_free: bool) -> tuple[str, ...]:
    """Return the conditions that do not hold now, in words; what needs a build is not among them."""
    found = []
    window = spec.conditions.window
    local = now.astimezone(spec.zone).time()
    if window is not None and not window.holds(local):
        found.append(f"outside the window {window.opens:%H:%M} to {window.closes:%H:%M}")
    if spec.conditions.gpu == "free" and not gpu_free:
        found.append("no GPU is free")
    return tuple(found)
