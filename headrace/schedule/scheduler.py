"""Looks after schedules: looks when one is due, runs its night, and writes down what came of it.

A night may begin and not end, because its scheduler was stopped or killed. It is made up for like a
missed one, once everything that it started has ended.
"""

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headrace.app.home import Home
from headrace.schedule.runner import CommandOutcome, InheritingCommands, Night, run_night
from train.recipes.settings import load_or_shipped
from train.runs.hardware import free_gpus
from train.schedule import DueNight, Schedule, SkippedNights, due, unmet
from trajectory.files import (
    append_line,
    damaged_file,
    locked,
    make_folders,
    read_file,
    read_json_lines,
    replace_file,
)

_LOOK_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class NightHistory:
    """History of a schedule: one JSON object per night, appended."""

    folder: Path
    name: str

    @property
    def path(self) -> Path:
        """``<folder>/<name>.jsonl``"""
        return self.folder / f"{self.name}.jsonl"

    def nights(self) -> list[dict[str, Any]]:
        """Return what is known of each night, oldest first; a line that tells of none is left out."""
        found: dict[str | int, dict[str, Any]] = {}
        for number, entry in enumerate(read_json_lines(self.path)):
            if _is_night(entry):
                # How a night ended stands in a later line than that it began.
                found[entry.get("night", number)] = entry
        return list(found.values())

    def broken_off(self) -> dict[str, Any] | None:
        """Return the latest night when it began and did not end: it still runs, or its scheduler died."""
        last = next(reversed(self.nights()), None)
        return last if last is not None and last["outcome"] in ("begun", "interrupted") else None

    def write(self, entry: dict[str, Any]) -> None:
        """Append an entry; it is on disk when this returns."""
        make_folders(self.folder, 0o700)
        append_line(self.path, json.dumps(entry, sort_keys=True))

    def looked_after(self, now: datetime) -> datetime:
        """Return the time of the last night that was looked after; a new schedule begins now.

        Nights that are yet to come do not count: they were written while the clock was wrong.
        """
        times = [datetime.fromisoformat(entry["due"]) for entry in self.nights()]
        if past := [time for time in times if time <= now]:
            return max(past)
        self.write({"due": now.isoformat(), "outcome": "first seen"})
        return now

    def learned_items(self) -> frozenset[str]:
        """Return the items that earlier nights learned from.

        Raises:
            ConfigurationError: the file is damaged.
        """
        path = self.folder / f"{self.name}.items"
        try:
            return frozenset(read_file(path).decode("ascii").split())
        except FileNotFoundError:
            return frozenset()
        except UnicodeDecodeError as error:
            remedy = "restore it, or remove it: then every item counts as new"
            raise damaged_file(path, error, remedy) from None

    def remember_items(self, items: Sequence[str]) -> None:
        """Keep the ids of what was learned from; ids are hashes and hold no content."""
        if not items:
            return
        everything = sorted(self.learned_items() | set(items))
        replace_file(self.folder / f"{self.name}.items", ("\n".join(everything) + "\n").encode())


class Scheduler:
    """Runs schedules one after another, each when it is due."""

    def __init__(
        self,
        schedules: Sequence[Schedule],
        home: Home,
        run: InheritingCommands,
        *,
        report: Callable[[str], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._schedules = schedules
        self._folder = home.state / "schedules"
        self._run = run
        self._report = report
        self._now = now
        self._pause = pause
        self._up_since: datetime | None = None

    def watch(self, *, until: Callable[[], bool] = lambda: False) -> None:
        """Look after all schedules until told to stop."""
        self._up_since = self._now()
        while not until():
            for schedule in self._schedules:
                self.look(schedule)
            self._pause(_LOOK_SECONDS)

    def look(self, schedule: Schedule) -> Night | None:
        """Run a schedule's night if one is due."""
        diary = self.diary(schedule)
        now = self._now()
        found = due(
            schedule.spec,
            looked_after=diary.looked_after(now),
            now=now,
            up_since=self._up_since,
        )
        if isinstance(found, SkippedNights):
            entry = {"due": found.last.isoformat(), "outcome": "missed", "missed": found.nights}
            diary.write(entry)
            self._report(f"{schedule.metadata.name}: {found.nights} missed, not made up for")
        if isinstance(found, DueNight):
            return self.run(schedule, found)
        if found is None and (broken := diary.broken_off()) is not None:
            return self._make_up(schedule, broken)
        return None

    def _make_up(self, schedule: Schedule, broken: dict[str, Any]) -> Night | None:
        """Run a night again whose scheduler died, as often as what fails is tried; it may still run."""
        diary, spec = self.diary(schedule), schedule.spec
        with self._lock(schedule, wait=False) as lock:
            if lock is None:
                return None
            if broken["outcome"] == "begun":
                diary.write({**broken, "outcome": "interrupted"})
            tries = sum(
                "begun" in night and night["due"] == broken["due"] for night in diary.nights()
            )
            if not spec.catch_up or tries >= spec.retries.attempts:
                return None
            return self._keep(schedule, broken["due"], {"made_up_for": "1"}, lock)

    def run(
        self, schedule: Schedule, night: DueNight | None = None, *, as_of: str | None = None
    ) -> Night:
        """Run a night now, whether or not one is due, under the schedule's conditions.

        Its decision looks at the nights before ``as_of``, by default before the day of the newest step.
        """
        due = (night.at if night else self._now()).isoformat()
        more = {"made_up_for": str(night.missed)} if night is not None and night.late else {}
        with self._lock(schedule, wait=schedule.spec.overlap == "wait") as lock:
            return self._keep(schedule, due, more, lock, as_of)

    def _keep(
        self,
        schedule: Schedule,
        due: str,
        more: Mapping[str, str],
        lock: int | None,
        as_of: str | None = None,
    ) -> Night:
        """Run a night and write down that it begins and how it ends."""
        diary = self.diary(schedule)
        begun = self._now().isoformat()
        entry = {"night": secrets.token_hex(4), "due": due, "begun": begun, **more}
        if lock is None:
            result = Night("skipped", ("another night of this model still runs",))
        else:
            diary.write(entry | {"outcome": "begun"})
            try:
                result = self._under_conditions(schedule, diary, lock, as_of)
            except BaseException:
                diary.write(entry | {"outcome": "interrupted", "ended": self._now().isoformat()})
                raise
        diary.remember_items(result.item_ids)
        facts = asdict(replace(result, item_ids=()))
        del facts["item_ids"]
        diary.write(entry | facts | {"ended": self._now().isoformat()})
        words = "; ".join(result.reasons)
        self._report(f"{schedule.metadata.name}: {result.outcome}{': ' if words else ''}{words}")
        return result

    def diary(self, schedule: Schedule) -> NightHistory:
        """Return what a schedule did."""
        return NightHistory(self._folder, schedule.metadata.name)

    def _under_conditions(
        self, schedule: Schedule, diary: NightHistory, lock: int, as_of: str | None
    ) -> Night:
        missing = self._wait_for_conditions(schedule)
        if missing:
            return Night("skipped", missing)

        def run(arguments: Sequence[str], seconds: float) -> CommandOutcome:
            # What it starts holds the lock too: no night begins beside it when this process dies.
            return self._run(arguments, seconds, keep=(lock,))

        known = diary.learned_items()
        return run_night(schedule, run, known_items=known, as_of=as_of, pause=self._pause)

    def _wait_for_conditions(self, schedule: Schedule) -> tuple[str, ...]:
        """Return what still does not hold when the waiting time is over."""
        spec = schedule.spec
        end = self._now() + timedelta(minutes=spec.conditions.wait_minutes)
        while True:
            free = spec.conditions.gpu == "any" or free_gpus() >= _gpus_needed(schedule)
            missing = unmet(spec, now=self._now(), gpu_free=free)
            if not missing or self._now() >= end:
                return missing
            self._pause(_LOOK_SECONDS)

    def _lock(self, schedule: Schedule, *, wait: bool) -> AbstractContextManager[int | None]:
        """Hold the model's lock; gives its descriptor, or None when another night has it."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return locked(self._folder / f"{schedule.spec.model}.lock", wait=wait)


def _is_night(entry: Mapping[str, Any]) -> bool:
    """Tell whether a line of a diary says when a night was due, and what came of it."""
    try:
        due = datetime.fromisoformat(entry["due"])
    except (KeyError, TypeError, ValueError):  # a crash or a full disk damaged it
        return False
    return due.tzinfo is not None and isinstance(entry.get("outcome"), str)


def _gpus_needed(schedule: Schedule) -> int:
    """Return how many GPUs of this machine the recipe takes that takes most."""
    return max(load_or_shipped(recipe).spec.gpus for recipe in schedule.spec.recipes)
