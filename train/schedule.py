"""The YAML document of kind ``Schedule``, and when one is due."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from pydantic import Field, field_validator, model_validator

from train.recipes.settings import RECIPES
from trajectory.documents.document import NAME_PATTERN, Document, StrictModel, load_document

_LONGEST_MINUTES = 366 * 24 * 60


class Window(StrictModel):
    """The hours in which a night may begin, in the schedule's time zone; it may pass midnight."""

    opens: time
    closes: time

    @model_validator(mode="after")
    def _is_a_window(self) -> Self:
        if self.opens.tzinfo or self.closes.tzinfo:
            raise ValueError("give times without an offset; they are in the schedule's time_zone")
        if self.opens == self.closes:
            raise ValueError("opens and closes at one time, so that no night may begin")
        return self

    def holds(self, moment: time) -> bool:
        """Whether a time of day lies in the window."""
        if self.opens <= self.closes:
            return self.opens <= moment < self.closes
        return moment >= self.opens or moment < self.closes


class Conditions(StrictModel):
    """Conditions of a night. It waits for them, and is skipped if they stay false."""

    minimum_new_items: int = Field(default=1, ge=0)
    """Items that no earlier night of this schedule learned from; counted after the build."""
    gpu: Literal["any", "free"] = "any"
    """``free``: as many visible GPUs as a recipe takes have nine tenths of their memory free, as
    nvidia-smi tells; the run takes the freest."""
    window: Window | None = None
    wait_minutes: float = Field(default=0, ge=0, le=_LONGEST_MINUTES)
    """How long to wait for GPU and window before the night is skipped."""


class Retries(StrictModel):
    """Retries after a failure; a candidate that the gate refused is no failure."""

    attempts: int = Field(default=2, ge=1, le=10)
    """Tries of each command in all."""
    wait_minutes: float = Field(default=5, ge=0, le=_LONGEST_MINUTES)


class ScheduleSpec(StrictModel):
    """The ``spec`` of a schedule."""

    cron: str
    """Minute, hour, day of month, month, day of week, as Debian's cron reads them."""
    time_zone: str = "UTC"
    substrate: Path
    """Document of kind Substrate, built anew each night; relative to this file."""
    recipes: tuple[str, ...] = Field(default=("sft",), min_length=1)
    """Documents of kind Recipe (relative to this file) or shipped names, in the order of the
    ladder. Those that the planner finds runnable are run."""
    model: str = Field(pattern=NAME_PATTERN)
    evolution: Path | None = None
    """Document of kind Evolution, relative to this file. Each night first decides what should change (``headrace
    evolve run``). It trains only if that is the weights, and draws artefacts if it is memory, skill, harness or
    tool schema."""
    promote: bool | Literal["ladder"] = False
    """Let a model that passed its gate serve at once; the next recipe then starts from it. With
    ``ladder`` it goes on trial instead (``headrace trial``), by ``promotion.ladder`` of ``evolution`` or
    of the shipped policy, and ends the night. An artefact goes on trial too, and else waits for a person."""
    conditions: Conditions = Conditions()
    deadline_minutes: float = Field(default=480, gt=0, le=_LONGEST_MINUTES)
    """A night that is not over by then is stopped; a run that began with the same goes on later."""
    overlap: Literal["skip", "wait"] = "skip"
    """When another night of the same model still runs."""
    retries: Retries = Retries()
    catch_up: bool = True
    """A night that was missed (machine off) is made up for, once however many were missed; one that
    was broken off goes on."""

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, value: str) -> str:
        from datetime import UTC, datetime

        try:
            next(CronSim(value, datetime(2026, 1, 1, tzinfo=UTC)))
            if len(value.split()) != 5:  # a sixth would be read as seconds before the minutes
                raise CronSimError
        except (CronSimError, StopIteration):
            raise ValueError(
                "is no cron expression that ever comes: five fields, such as '0 2 * * *' "
                "(minute, hour, day of month, month, day of week)"
            ) from None
        return value

    @field_validator("recipes")
    @classmethod
    def _are_recipes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not name.endswith((".yaml", ".yml")) and name not in RECIPES:
                raise ValueError(
                    f"{name!r} is no .yaml file and no shipped recipe; those are {', '.join(RECIPES)}"
                )
        return value

    @field_validator("time_zone")
    @classmethod
    def _is_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("is no time zone; give one such as UTC or Europe/Berlin") from None
        return value

    @property
    def zone(self) -> ZoneInfo:
        """The time zone."""
        return ZoneInfo(self.time_zone)


class Schedule(Document):
    """A document of kind ``Schedule``."""

    kind: Literal["Schedule"]
    spec: ScheduleSpec


def load_schedule(path: Path) -> Schedule:
    """Read a schedule; the documents that it names become paths from here.

    Raises:
        DocumentError: naming file, line and field.
    """
    schedule = load_document(Schedule, path)
    spec = schedule.spec
    folder = path.parent
    found = {
        "substrate": folder / spec.substrate,
        "evolution": None if spec.evolution is None else folder / spec.evolution,
        "recipes": tuple(
            str(folder / name) if name.endswith((".yaml", ".yml")) else name
            for name in spec.recipes
        ),
    }
    return schedule.model_copy(update={"spec": spec.model_copy(update=found)})


LATE = timedelta(minutes=5)
"""A night that begins later than this after its time was missed, not merely slow to begin."""


@dataclass(frozen=True, slots=True)
class DueNight:
    """A night that should begin now."""

    at: datetime
    """Its time by the schedule, UTC."""
    missed: int
    """Earlier nights that were missed since the last one that was looked after."""
    late: bool


@dataclass(frozen=True, slots=True)
class SkippedNights:
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
) -> DueNight | SkippedNights | None:
    """Return what is due.

    Args:
        looked_after: time of the last night that was run, skipped or made up for; for a schedule
            that is new, when it was first seen, so that nothing before is made up for.
        now: the clock.
        up_since: since when somebody looks; a night whose time came after that waited its turn
            behind another schedule's, and was not missed.

    Returns:
        The latest night whose time has come; ``SkippedNights`` when it was missed and the schedule does
        not catch up; None when nothing is due.
    """
    passed = list(takewhile(lambda moment: moment <= now, occurrences(spec, looked_after)))
    if not passed:
        return None
    waited = up_since is not None and passed[-1] >= up_since
    late = now - passed[-1] > LATE and not waited
    if late and not spec.catch_up:
        return SkippedNights(passed[-1], len(passed))
    return DueNight(at=passed[-1], missed=len(passed) - 1 + late, late=late)


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
