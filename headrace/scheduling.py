"""Keeps schedules: looks when one is due, runs its night, and writes down what came of it."""

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headrace.home import Home
from headrace.night import Commands, Night, run_night
from train.schedule import Due, Skipped, due, unmet
from train.schedule_spec import Schedule

_LOOK_SECONDS = 20.0
_FREE_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Diary:
    """What a schedule did: one JSON object per night, appended."""

    folder: Path
    name: str

    @property
    def path(self) -> Path:
        """``<folder>/<name>.jsonl``"""
        return self.folder / f"{self.name}.jsonl"

    def nights(self) -> list[dict[str, Any]]:
        """Return all entries, oldest first; a line cut off by a crash is left out."""
        if not self.path.is_file():
            return []
        found = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def write(self, entry: dict[str, Any]) -> None:
        """Append an entry; it is on disk when this returns."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        line = json.dumps(entry, sort_keys=True).encode() + b"\n"
        with self.path.open("ab+") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            if size and file.read(1) != b"\n":
                line = b"\n" + line  # an entry that a crash cut off stays alone on its line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def looked_after(self, now: datetime) -> datetime:
        """Return the time of the last night that was looked after; a new schedule begins now."""
        times = [datetime.fromisoformat(entry["due"]) for entry in self.nights()]
        if times:
            return max(times)
        self.write({"due": now.isoformat(), "outcome": "first seen"})
        return now

    def learned_items(self) -> frozenset[str]:
        """Return the items that earlier nights learned from."""
        path = self.folder / f"{self.name}.items"
        return frozenset(path.read_text().split()) if path.is_file() else frozenset()

    def remember_items(self, items: Sequence[str]) -> None:
        """Keep the ids of what was learned from; ids are hashes and hold no content."""
        if not items:
            return
        everything = sorted(self.learned_items() | set(items))
        waiting = self.folder / f"{self.name}.items.new"
        waiting.write_text("\n".join(everything) + "\n")
        waiting.replace(self.folder / f"{self.name}.items")


class Keeper:
    """Runs schedules one after another, each when it is due."""

    def __init__(
        self,
        schedules: Sequence[Schedule],
        home: Home,
        run: Commands,
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
        if isinstance(found, Skipped):
            entry = {"due": found.last.isoformat(), "outcome": "missed", "missed": found.nights}
            diary.write(entry)
            self._report(f"{schedule.metadata.name}: {found.nights} missed, not made up for")
        if isinstance(found, Due):
            return self.run(schedule, found)
        return None

    def run(self, schedule: Schedule, night: Due | None = None) -> Night:
        """Run a night now, whether or not one is due, under the schedule's conditions."""
        diary, begun = self.diary(schedule), self._now()
        entry = {"due": (night.at if night else begun).isoformat(), "begun": begun.isoformat()}
        if night is not None and night.late:
            entry["made_up_for"] = str(night.missed)
        with self._lock(schedule) as free:
            if not free:
                result = Night("skipped", ("another night of this model still runs",))
            else:
                result = self._under_conditions(schedule, diary)
        diary.remember_items(result.item_ids)
        facts = asdict(replace(result, item_ids=()))
        del facts["item_ids"]
        diary.write(entry | facts | {"ended": self._now().isoformat()})
        words = "; ".join(result.reasons)
        self._report(f"{schedule.metadata.name}: {result.outcome}{': ' if words else ''}{words}")
        return result

    def diary(self, schedule: Schedule) -> Diary:
        """Return what a schedule did."""
        return Diary(self._folder, schedule.metadata.name)

    def _under_conditions(self, schedule: Schedule, diary: Diary) -> Night:
        missing = self._wait_for_conditions(schedule)
        if missing:
            return Night("skipped", missing)
        return run_night(schedule, self._run, known_items=diary.learned_items(), pause=self._pause)

    def _wait_for_conditions(self, schedule: Schedule) -> tuple[str, ...]:
        """Return what still does not hold when the waiting time is over."""
        spec = schedule.spec
        end = self._now() + timedelta(minutes=spec.conditions.wait_minutes)
        while True:
            free = spec.conditions.gpu == "any" or gpu_is_free()
            missing = unmet(spec, now=self._now(), gpu_free=free)
            if not missing or self._now() >= end:
                return missing
            self._pause(_LOOK_SECONDS)

    @contextmanager
    def _lock(self, schedule: Schedule) -> Iterator[bool]:
        """Hold the model's lock; yields False when another night has it and the rule is to skip."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._folder / f"{schedule.spec.model}.lock").open("w") as file:
            wait = schedule.spec.overlap == "wait"
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            yield True


def gpu_is_free() -> bool:
    """Whether some GPU of this machine has nine tenths of its memory free, as nvidia-smi tells."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    query = [program, "--query-gpu=memory.used,memory.total", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, check=False, timeout=60)
    lines = [line.split(",") for line in done.stdout.splitlines() if line.count(",") == 1]
    return any(float(used) <= (1 - _FREE_SHARE) * float(total) for used, total in lines)
