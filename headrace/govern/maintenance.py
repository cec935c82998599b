"""Runs the lake's due maintenance in a separate process beside the governor.

A process of its own, so that sorting a day's files neither holds up the next batch nor adds to
the governing process's memory; killed at any moment, it leaves the tables as they were.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from governance.audit import AuditLog
from governance.identifiers import Namer
from headrace.app.home import Home
from headrace.app.settings import LakeSettings
from headrace.govern.near_duplicates import sweep_near
from headrace.processes.supervisor import headrace_command, in_the_name_of
from lakehouse.erasure.erase import RemovalReport, expire
from lakehouse.erasure.late_names import forget_replaced
from lakehouse.erasure.retention import Holds
from lakehouse.lake import Lake
from lakehouse.maintenance.harness_fill import fill_harnesses
from lakehouse.maintenance.logprob_removal import remove_logprobs
from lakehouse.maintenance.table_maintenance import TableMaintenance, maintain
from train.registry.artifacts import ArtifactRegistry
from train.registry.versions import ModelRegistry
from train.runs import folders as run_folders
from trajectory.child_process import ChildProcess, open_log
from trajectory.clock import RoundClock

SWEPT = "retention.swept"
_STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """Result of one round of maintenance."""

    tables: tuple[TableMaintenance, ...]
    sweep: RemovalReport | None
    """None when the retention sweep was not due, or nothing had expired."""
    leap: timedelta | None = None
    """How far the clock is ahead of the last long round, where the sweep waits until that is sure."""


def maintain_home(
    lake: Lake,
    settings: LakeSettings,
    home: Home,
    audit: AuditLog,
    *,
    actor: str,
    holds: Holds | None = None,
    namer: Namer | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> MaintenanceReport:
    """Do what is due: compact, checkpoint, clean logs, vacuum; now and then also the long round.

    The long round (``lake.sweep_hours``) removes what has expired, and looks for files that no
    log ever knew, also where listing them is slow. What killed runs and registrations left, and files
    whose rows were rewritten, go each time. Once, log probabilities go from ``ext`` in steps of an older
    lake, and with ``namer`` these steps get their harness's version.
    """
    clock = RoundClock(home.state)
    long = not timedelta(0) <= clock.since() < timedelta(hours=settings.sweep_hours)
    ArtifactRegistry(home.artifacts, source=lake).end_killed()
    ModelRegistry(home.models, source=lake).end_killed()
    leap = clock.leap() if long else None
    long = long and leap is None
    sweep = swept(lake, audit, home, actor=actor, holds=holds) if long else None
    run_folders.sweep(lake, home.runs)
    with lake.lease():
        forget_replaced(lake)
    remove_logprobs(lake)
    if namer is not None:
        fill_harnesses(lake, lake.lineages(), namer)
    tables = maintain(
        lake,
        # No file of a writer beside this is old because the clock leapt.
        vacuum_hours=settings.vacuum_hours + (leap.total_seconds() / 3600 if leap else 0),
        log_commits=settings.log_commits,
        everything=long,
        progress=progress,
    )
    if long:
        clock.done()
    return MaintenanceReport(tables, sweep, leap)


def swept(
    lake: Lake,
    audit: AuditLog,
    home: Home,
    *,
    actor: str,
    holds: Holds | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RemovalReport | None:
    """Remove what has reached the end of its retention; None when there is nothing.

    What was removed, and what a legal hold kept, is noted in the audit log.
    """
    report = expire(lake, dry_run=True, holds=holds)
    due = bool(report.reach.trajectories or report.alone or report.interrupted)
    if due:
        report = expire(lake, progress=progress, holds=holds)
        sweep_near(home, lake)
        ArtifactRegistry(home.artifacts, source=lake).sweep()
    elif not report.held:
        return None
    audit.append(
        actor=actor,
        action=SWEPT,
        subject=report.removal_id,
        detail={"rows": dict(report.rows), "held": report.held},
    )
    return report if due else None


MAINTAIN = ("lake", "maintain")
CARRY_TRIALS = ("trial", "step")
VERIFY_AUDIT = ("audit", "verify")


class BackgroundCommand:
    """Starts a command of ``headrace`` again and again, one at a time."""

    def __init__(
        self,
        home: Home,
        command: tuple[str, ...],
        every_seconds: float,
        report: Callable[[str], None],
        *,
        due: Callable[[], bool] = lambda: True,
    ) -> None:
        """Look after ``home``; the first round begins after one period, and only while there is work."""
        self._home = home
        self._command = command
        self._due = due
        self._every = every_seconds
        self._report = report
        self._last = time.monotonic()
        self._process: ChildProcess | None = None

    def look(self) -> bool:
        """Start a round when one is due, and say when the last one failed; returns at once.

        Returns:
            Whether a round was started.
        """
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return False
            self._process.stop()
            self._process = None
            if code:
                self._report(
                    f"headrace {' '.join(self._command)} ended with {code}; see {self._log}"
                )
        if time.monotonic() - self._last < self._every:
            return False
        self._last = time.monotonic()
        if not self._due():
            return False
        self._start()
        return True

    def stop(self) -> None:
        """End a round that is under way; what it was doing is simply not done."""
        if self._process is not None:
            self._process.stop()

    @property
    def _log(self) -> str:
        return str(self._home.logs / f"{'-'.join(self._command)}.log")

    def _start(self) -> None:
        arguments = ("--home", str(self._home.root), *self._command, "--json")
        with open_log(Path(self._log)) as log:
            self._process = ChildProcess(
                headrace_command(arguments),
                stderr=log,
                environment=in_the_name_of("governor"),
                stop_seconds=_STOP_SECONDS,
            )
