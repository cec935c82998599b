"""The trials of an installation: one file each, replaced as a whole."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from evolve.arms import NONE_UNDRAWN, Thresholds, Undrawn
from evolve.detectors import Counted
from evolve.policy import Ladder, Rung
from evolve.trial import ArmComparison, Arms
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError, HeadraceError
from trajectory.files import locked, make_folders, read_file, replace_file

type Surface = Literal["model", "artifact"]
type TrialOutcome = Literal[
    "live", "harm", "drop", "max_days", "refused", "rejected", "ended", "overtaken"
]
"""live: it stayed to the end of its watch; harm and drop: rolled back; overtaken: somebody else changed
what serves."""


@dataclass(frozen=True, slots=True)
class TrialState:
    """A trial as its file has it."""

    trial_id: str
    kind: Surface
    name: str
    version: str
    control: str
    """The version that was live when it began; empty where an artefact is tried against none."""
    routes: tuple[str, ...]
    decision: str | None
    ladder: Ladder
    begun_at: datetime
    rung: Rung
    moved_at: datetime
    """When it came to this rung."""
    entered: bool = False
    """Whether the registry's pointer says so too."""
    asks: Rung | None = None
    """The rung that a person must approve."""
    approved: tuple[Rung, ...] = ()
    seen_until: datetime | None = None
    """Sessions that were silent before were counted."""
    looked_at: datetime | None = None
    """When it was last carried on."""
    lasted_seconds: float = 0.0
    """How long it has been on this rung, as far as the clock can be believed."""
    thresholds: Thresholds = field(default_factory=Thresholds)
    comparisons: Mapping[str, ArmComparison] = field(default_factory=dict)
    outcome: TrialOutcome | None = None
    reasons: tuple[str, ...] = ()
    ended_at: datetime | None = None
    exam: tuple[str, ...] = ()
    """What its exam found, rule by rule."""
    tenant: str | None = None
    """Whose calls an artefact is for; None for everybody's."""
    undrawn: Undrawn = NONE_UNDRAWN
    """What joined neither arm since it came to this rung."""
    closed: bool = False
    """Whether nothing is left to be done about how it ended."""

    @property
    def label(self) -> str:
        """``name@version``."""
        return f"{self.name}@{self.version}"

    @property
    def summary(self) -> dict[str, Any]:
        """What lists of trials show."""
        return {
            "trial": self.trial_id,
            "candidate": self.label,
            "control": self.control,
            "rung": self.rung,
            "since": self.moved_at,
            "asks": self.asks,
            "outcome": self.outcome,
            "undrawn": self.undrawn.sessions,
            "reasons": self.reasons,
        }


class TrialFiles:
    """The trials of an installation: one file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> list[TrialState]:
        """Return every trial, oldest first.

        Raises:
            ConfigurationError: a file holds something else.
        """
        found, failed = self.readable()
        if failed:
            raise failed[0]
        return found

    def readable(self) -> tuple[list[TrialState], list[HeadraceError]]:
        """Return every trial that can be read, oldest first, and why the others cannot."""
        found: list[TrialState] = []
        failed: list[HeadraceError] = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                found.append(_read(path))
            except ConfigurationError as error:
                failed.append(error)
        return sorted(found, key=lambda one: (one.begun_at, one.trial_id)), failed

    def get(self, asked: str) -> TrialState:
        """Return a trial by its id, or the newest of ``name@version`` or of a name.

        Raises:
            ConfigurationError: there is none.
        """
        found = [one for one in self.all() if asked in (one.trial_id, one.label, one.name)]
        if not found:
            raise ConfigurationError(f"there is no trial {asked!r} (`headrace trial list`)")
        return found[-1]

    def write(self, state: TrialState) -> None:
        """Replace a trial's file; it is on disk when this returns."""
        value = asdict(state) | {"ladder": state.ladder.model_dump(mode="json")}
        value |= {name: value[name] and value[name].isoformat() for name in _TIMES}
        replace_file(self._folder / f"{state.trial_id}.json", canonical_json(value))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Change trials while no other process does."""
        make_folders(self._folder, 0o700)
        with locked(self._folder / "lock", wait=True):
            yield

    def next_id(self, kind: Surface, name: str, version: str) -> str:
        """Return an id that no trial has."""
        wanted, number = f"{kind}.{name}.{version}", 1
        while (self._folder / f"{wanted}.json").exists():
            number += 1
            wanted = f"{kind}.{name}.{version}.{number}"
        return wanted


_TIMES = ("begun_at", "moved_at", "seen_until", "looked_at", "ended_at")


def _read(path: Path) -> TrialState:
    try:
        value = json.loads(read_file(path))
        for name in _TIMES:
            value[name] = value[name] and datetime.fromisoformat(value[name])
        for name in ("routes", "approved", "reasons", "exam"):
            value[name] = tuple(value.get(name) or ())
        value["ladder"] = Ladder.model_validate(value["ladder"])
        value["thresholds"] = Thresholds(**value["thresholds"])
        value["undrawn"] = Undrawn(*value.get("undrawn") or (0, 0))
        value["comparisons"] = {
            name: ArmComparison(
                Arms(*(Counted(*each) for each in one["arms"])),
                tuple(one["harm"]),
                tuple(one["no_worse"]),
            )
            for name, one in value["comparisons"].items()
        }
        return TrialState(**value)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ConfigurationError(
            f"{path}: cannot be read as a trial ({type(error).__name__}); restore it, or remove it "
            "and end the canary by hand (`headrace train end-trial`)"
        ) from None


def has_open(folder: Path) -> bool:
    """Tell whether a trial is under way in a folder, or a file of one cannot be read."""
    try:
        return any(not one.closed for one in TrialFiles(folder).all())
    except ConfigurationError:
        return True
