"""Which trajectories there are, found once for each day of the lake and kept in memory.

The view ``trajectories`` reads each step to tell of one trajectory. Who lists, counts or looks one up asks here
instead. The rows are those of the view itself, over the files of a few days at a time. New files make it read only
their days again, and the other days of the trajectories found there.

It reads in a thread of its own. It first finds where each trajectory lies and its signals, then its rows from the
latest day back. A reader waits for the first of these days alone. What comes later is read with little claim on
the processor, and nobody need wait for it.
"""

import os
import re
import sys
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakehouse.read.connection import connect, explained, rows_of
from lakehouse.read.corrections import CORRECTIONS
from lakehouse.read.session import Session, Snapshot

LISTED = (
    "tenant_id", "trajectory_id", "app_id", "environment", "started_at", "ended_at", "steps",
    "tool_calls", "tool_failures", "failed_steps", "input_tokens", "output_tokens", "model_served",
    "harness_name", "harness_version", "session_hint", "group_id", "reward", "success", "signals",
)  # fmt: skip
"""Columns of ``listed``, as the view ``trajectories`` has them."""
_JUDGED = ("reward", "success", "signals")
_OWN = tuple(name for name in LISTED if name not in _JUDGED)
_AT_ONCE = 7
"""Days that are read at a time, so that memory holds them."""
_A_FEW = 500
"""Trajectories whose signals are looked up by name; beyond it all are read."""
_REMEMBERED = 64
"""Answers that are kept until something changes."""
_NICE = 5
_SHARE = 10
"""Of the time, at most one part in so many goes into reading again."""
_DAY = re.compile(r"/event_date=(\d{4}-\d\d-\d\d)/")
_KEY = "tenant_id, trajectory_id"
_TABLES = """
CREATE TABLE step_days (tenant_id VARCHAR, trajectory_id VARCHAR, event_date DATE);
CREATE TABLE signal_days (tenant_id VARCHAR, trajectory_id VARCHAR, event_date DATE);
CREATE TABLE rewards (tenant_id VARCHAR, trajectory_id VARCHAR, reward DOUBLE, success BOOLEAN, signals BIGINT);
CREATE TABLE listed (tenant_id VARCHAR, trajectory_id VARCHAR, app_id VARCHAR, environment VARCHAR,
    started_at TIMESTAMPTZ, ended_at TIMESTAMPTZ, steps BIGINT, tool_calls BIGINT, tool_failures BIGINT,
    failed_steps BIGINT, input_tokens BIGINT, output_tokens BIGINT, model_served VARCHAR,
    harness_name VARCHAR, harness_version BIGINT, session_hint VARCHAR, group_id VARCHAR,
    reward DOUBLE, success BOOLEAN, signals BIGINT);
CREATE TABLE verdicts (tenant_id VARCHAR, trajectory_id VARCHAR, event_date DATE, name VARCHAR, source VARCHAR,
    value DOUBLE, label VARCHAR, recorded_at TIMESTAMPTZ);
CREATE TABLE touched (tenant_id VARCHAR, trajectory_id VARCHAR);
"""  # fmt: skip
_STEPS = f"SELECT DISTINCT {_KEY}, event_date FROM steps"  # noqa: S608
_SIGNALS = f"SELECT DISTINCT {_KEY}, event_date FROM signals WHERE trajectory_id IS NOT NULL"  # noqa: S608
VERDICTS = """
SELECT tenant_id, coalesce(trajectory_id, target_id) AS trajectory_id, event_date, name, source, value,
       label, recorded_at
FROM signals
WHERE (trajectory_id IS NOT NULL OR target_kind = 'trajectory')
  AND source_kind = 'human_explicit' AND starts_with(source, 'rater-')
"""
"""What people said of trajectories, also of those that whoever wrote it down did not know any more."""
_ROWS = f"SELECT {', '.join(_OWN)} FROM trajectories"  # noqa: S608
_REWARDS = f"""
SELECT {_KEY}, coalesce(reward, success) AS reward, succeeded(success, label) AS success, signals
FROM part.rewarded_and_counted
"""  # noqa: S608
_WIDE = """
SELECT coalesce(bool_or(trajectory_id IS NULL), false) AS unplaced,
       coalesce(bool_or(supersedes IS NOT NULL), false) AS replacing FROM signals
"""
_DAYS = """
SELECT DISTINCT event_date, true AS steps FROM step_days WHERE trajectory_id = $id
UNION ALL SELECT DISTINCT event_date, false FROM signal_days WHERE trajectory_id = $id
"""

type _Files = dict[str, tuple[str, ...]]
"""By day."""


@dataclass(frozen=True, slots=True)
class Days:
    """Where the rows of one trajectory lie."""

    steps: frozenset[str]
    """Days of its steps."""
    signals: frozenset[str] | None
    """Days of what was said of it; None where any day may have some."""


def by_day(files: Iterable[str]) -> _Files:
    """Return the files of a table by the day of their partition."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in files:
        day = _DAY.search(file)
        found[day[1] if day else ""].append(file)
    return {day: tuple(there) for day, there in found.items()}


def of_days(files: Iterable[str], days: Collection[str]) -> tuple[str, ...]:
    """Return the files whose partition is one of these days."""
    return tuple(file for file in files if (day := _DAY.search(file)) and day[1] in days)


class TrajectoryIndex:
    """The trajectories of what a reader may see. Safe for threads.

    A list is behind the lake by no more than ten times as long as it takes to catch up.
    """

    def __init__(
        self,
        snapshot: Callable[[Collection[str]], Snapshot],
        settings: Mapping[str, Any],
        *,
        patience: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make an index that is built when it is first asked.

        Args:
            snapshot: gives the present files of some tables.
            settings: those of DuckDB's connections.
            patience: for how many seconds who asks waits until it has caught up; None: to the end. Until
                there is something to show everybody waits.
            clock: seconds that only grow.
        """
        self._snapshot = snapshot
        self._settings = settings
        self._patience = patience
        self._clock = clock
        self._under_way: _CatchingUp | None = None
        self._mutex = threading.Lock()
        self._database = connect(settings)
        self._database.execute(_TABLES)
        self._steps: _Files = {}
        """Files that were read, by day; with those of corrections."""
        self._signals: _Files = {}
        self._judged_by: tuple[object, ...] = ()
        """The files that ``rewards`` stands on."""
        self._is_wide = False
        """Whether signals name no trajectory, or replace others: then each may be about any."""
        self._is_usable = False
        """Whether the latest days are there, and where all trajectories lie."""
        self._usable = threading.Event()
        """It is usable, or the first reading failed."""
        self._unread = 0
        self._rests_until = 0.0
        self._state = 0
        """Counts the changes."""
        self._answers: OrderedDict[object, pa.Table] = OrderedDict()

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Return the rows of a statement over ``listed`` and ``verdicts``, what people in the console said.

        Raises:
            QueryError: the SQL is wrong.
            RetryableError: memory ran out, or files went away while reading.
        """
        self.catch_up()
        asked = (self._state, sql, tuple(sorted((parameters or {}).items())))
        answer = self._answers.get(asked)
        if answer is None:
            with explained(), self._database.cursor() as cursor:
                cursor.execute("SET TimeZone = 'UTC'")
                answer = rows_of(cursor, sql, parameters)
            self._answers[asked] = answer
            while len(self._answers) > _REMEMBERED:
                self._answers.popitem(last=False)
        return answer

    def days(self, trajectory_id: str) -> Days:
        """Return where a trajectory's rows lie; no day where it is not known (yet)."""
        found = self.rows(_DAYS, {"id": trajectory_id}).to_pylist()
        steps = frozenset(str(row["event_date"]) for row in found if row["steps"])
        signals = frozenset(str(row["event_date"]) for row in found if not row["steps"])
        return Days(steps, None if self._is_wide else signals)

    def catch_up(self) -> None:
        """Have what came since read, unless that was done a moment ago; wait for it as patience lasts."""
        with self._mutex:
            if self._is_usable and self._clock() < self._rests_until:
                return
            if self._under_way is None:
                if not self._is_usable:
                    self._usable.clear()
                self._under_way = _CatchingUp(self._catch_up)
            under_way, was_usable = self._under_way, self._is_usable
        if self._patience is not None:
            self._usable.wait()
            if was_usable and not self._unread:
                under_way.wait(self._patience)  # where it takes longer, what it was before will do
            if self._is_usable:
                return
        under_way.wait(None)

    @property
    def unread_days(self) -> int:
        """How many days are still to be listed, before the first reading has ended."""
        return self._unread

    def _catch_up(self) -> None:
        begun = self._clock()
        if self._is_usable:
            _leave_the_processor()
        try:
            self._refresh(self._snapshot(["steps", "signals", CORRECTIONS]))
            ended = self._clock()
            self._rests_until = ended + (_SHARE - 1) * (ended - begun)
        finally:
            with self._mutex:
                self._under_way = None
            self._usable.set()

    def close(self) -> None:
        """Give memory back."""
        self._database.close()

    def _refresh(self, present: Snapshot) -> None:
        files = present.files
        corrected = by_day(files[CORRECTIONS])
        steps = {
            day: there + corrected.get(day, ()) for day, there in by_day(files["steps"]).items()
        }
        changed = sorted(
            (day for day in {*steps, *self._steps} if steps.get(day) != self._steps.get(day)),
            reverse=True,
        )
        is_first = not self._is_usable
        if is_first:
            self._find_places(present)
            self._judge(present, steps_changed=True)
        unread = len(changed)
        for days in _slices(changed):
            self._read_days(present, days)
            for day in days:
                if day in steps:
                    self._steps[day] = steps[day]
                else:
                    del self._steps[day]
            unread -= len(days)
            if is_first:
                self._show(unread)
        if is_first:
            self._show(0)
        else:
            self._judge(present, steps_changed=bool(changed))
            self._unread = 0

    def _show(self, unread: int) -> None:
        """Let those who wait see what there is, and be no burden to them from now on."""
        self._unread = unread
        self._is_usable = True
        self._usable.set()
        _leave_the_processor()

    def _find_places(self, present: Snapshot) -> None:
        """Find on which days each trajectory has steps."""
        alone = replace(present, files={**present.files, "signals": ()})
        with _reading(alone, self._settings) as reading, self._writing() as write:
            write.execute("DELETE FROM step_days")
            _insert(write, "step_days", reading.query(_STEPS))

    def _read_days(self, present: Snapshot, days: Sequence[str]) -> None:
        """Find anew the trajectories that have steps in some days, or had."""
        with (
            _reading(self._with(present, days), self._settings) as reading,
            self._writing() as write,
        ):
            found = reading.query(_STEPS)
            listed = ", ".join(f"DATE '{day}'" for day in days)
            write.execute("DELETE FROM touched")
            write.execute(
                f"INSERT INTO touched SELECT {_KEY} FROM step_days WHERE event_date IN ({listed})"  # noqa: S608
            )
            write.execute(f"DELETE FROM step_days WHERE event_date IN ({listed})")  # noqa: S608
            _insert(write, "step_days", found)
            write.execute(
                f"INSERT INTO touched SELECT {_KEY} FROM step_days WHERE event_date IN ({listed})"  # noqa: S608
            )
            more = write.execute(
                f"SELECT DISTINCT event_date FROM step_days SEMI JOIN touched USING ({_KEY})"  # noqa: S608
            ).fetchall()
            wanted = {str(day) for (day,) in more} | {*days}
            if len(wanted) > len(days):
                reading.bind(self._with(present, wanted))
            rows = reading.query(_ROWS)
            write.execute(f"DELETE FROM listed USING touched t WHERE {_same('listed', 't')}")  # noqa: S608
            write.register("found", rows)
            write.execute(
                f"INSERT INTO listed SELECT {', '.join(f'f.{name}' for name in _OWN)}, r.reward, "  # noqa: S608
                f"r.success, coalesce(r.signals, 0) FROM found f SEMI JOIN touched t ON {_same('f', 't')} "
                f"LEFT JOIN rewards r ON {_same('f', 'r')}"
            )
            write.unregister("found")

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """Yield a connection whose changes are seen all at once, or not at all."""
        with explained(), self._database.cursor() as write:
            write.execute("BEGIN")
            yield write
            write.execute("COMMIT")
        self._state += 1
        self._answers.clear()

    @staticmethod
    def _with(present: Snapshot, days: Collection[str]) -> Snapshot:
        """Return the files of some days' steps; nothing that was said about them."""
        steps = of_days(present.files["steps"], days)
        return replace(present, files={**present.files, "steps": steps, "signals": ()})

    def _judge(self, present: Snapshot, *, steps_changed: bool) -> None:
        """Find anew what signals say of trajectories, where they changed."""
        signals = by_day(present.files["signals"])
        corrections = tuple(present.files[CORRECTIONS])
        changed = [
            day for day in {*signals, *self._signals} if signals.get(day) != self._signals.get(day)
        ]
        stands_on = (tuple(present.files["signals"]), corrections)
        if stands_on == self._judged_by and not (self._is_wide and steps_changed):
            return
        with _reading(present, self._settings) as reading:
            days = of_days(present.files["signals"], changed)
            reading.bind(replace(present, files={**present.files, "signals": days}))
            places = reading.query(_SIGNALS)
            verdicts = reading.query(VERDICTS)
            (told,) = reading.query(_WIDE).to_pylist()
            grew = all({*self._signals.get(day, ())} <= {*signals.get(day, ())} for day in changed)
            self._is_wide = bool(told["unplaced"] or told["replacing"]) or (self._is_wide and grew)
            if not grew and not self._is_wide:
                reading.bind(present)
                (told,) = reading.query(_WIDE).to_pylist()
                self._is_wide = bool(told["unplaced"] or told["replacing"])
            few = None
            if grew and not self._is_wide and self._judged_by[1:] == (corrections,):
                few = self._said_of(reading, present, signals)
            reading.bind(present)
            with self._writing() as write:
                listed = ", ".join(f"DATE '{day}'" for day in changed) or "NULL"
                for table, found in (("signal_days", places), ("verdicts", verdicts)):
                    write.execute(f"DELETE FROM {table} WHERE event_date IN ({listed})")  # noqa: S608
                    _insert(write, table, found)
                self._write_rewards(write, reading, few)
        self._signals, self._judged_by = signals, stands_on

    def _said_of(self, reading: Session, present: Snapshot, signals: _Files) -> list[str] | None:
        """Return the trajectories that new signals are about; None where they are many."""
        known = {file for there in self._signals.values() for file in there}
        new = tuple(file for there in signals.values() for file in there if file not in known)
        reading.bind(replace(present, files={**present.files, "signals": new}))
        found = reading.query(
            f"SELECT DISTINCT trajectory_id FROM signals LIMIT {_A_FEW + 1}"  # noqa: S608
        )
        return None if found.num_rows > _A_FEW else list(found.column(0).to_pylist())

    @staticmethod
    def _write_rewards(write: Any, reading: Session, few: Sequence[str] | None) -> None:
        if few is None:
            write.execute("DELETE FROM rewards")
            _insert(write, "rewards", reading.query(_REWARDS))
            write.execute(
                f"CREATE OR REPLACE TABLE listed AS SELECT l.* REPLACE (r.reward AS reward, r.success AS success, "  # noqa: S608
                f"coalesce(r.signals, 0) AS signals) FROM listed l LEFT JOIN rewards r ON {_same('l', 'r')}"
            )
        elif few:
            names = ", ".join("?" for _ in few)
            found = reading.query(f"{_REWARDS} WHERE trajectory_id IN ({names})", few)
            write.execute(f"DELETE FROM rewards WHERE trajectory_id IN ({names})", few)  # noqa: S608
            _insert(write, "rewards", found)
            write.execute(
                "UPDATE listed SET reward = r.reward, success = r.success, signals = r.signals "  # noqa: S608
                f"FROM rewards r WHERE {_same('listed', 'r')} AND r.trajectory_id IN ({names})",
                few,
            )


class _CatchingUp:
    """Work in a thread of its own."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._over = threading.Event()
        self._error: Exception | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - who waits is told
            self._error = error
        finally:
            self._over.set()

    def wait(self, seconds: float | None) -> None:
        """Wait until it is over, or so long; raise what went wrong in it."""
        if self._over.wait(seconds) and self._error is not None:
            raise self._error


def _leave_the_processor() -> None:
    """Let others go first from now on, also before the threads that DuckDB starts from this one."""
    if sys.platform == "linux":  # elsewhere a priority is a whole process's
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def _slices(days: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield days a few at a time; the first one alone, as somebody may wait for it."""
    yield from (days[:1],) if days else ()
    for first in range(1, len(days), _AT_ONCE):
        yield days[first : first + _AT_ONCE]


@contextmanager
def _reading(snapshot: Snapshot, settings: Mapping[str, Any]) -> Iterator[Session]:
    """Yield a session for a moment."""
    session = Session(snapshot, connection=connect(settings))
    try:
        yield session
    finally:
        session.close()


def _same(one: str, other: str) -> str:
    return f"{one}.tenant_id = {other}.tenant_id AND {one}.trajectory_id = {other}.trajectory_id"


def _insert(write: Any, table: str, rows: pa.Table) -> None:
    write.register("inserted", rows)
    write.execute(f"INSERT INTO {table} SELECT * FROM inserted")  # noqa: S608
    write.unregister("inserted")
