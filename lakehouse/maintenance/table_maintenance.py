"""Keeps the tables fast and small: compaction, checkpoints, log clean-up, vacuum. Safe beside writers.

Fresh commits leave one small file per table, tenant and day. Compaction joins the small files of
each partition into one, sorted as the table's ``sort_by`` says (trajectory and step). So a look-up
skips nearly all of a file. Files that left the table stay for readers of earlier versions
until the vacuum's horizon has passed.
"""

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow.fs import FileType

from lakehouse.maintenance.log_cleanup import last_checkpoint, shorten
from lakehouse.maintenance.rewrite import (
    ActiveFile,
    OvertakenError,
    SeparateFile,
    list_files,
    rewrite,
)
from lakehouse.read.corrections import BY_DAY_OF_STEP, CORRECTIONS, by_partition, is_apart, mark_of
from lakehouse.read.spill import sweep_spills
from lakehouse.schema.tables import TABLES
from lakehouse.write.table_log import lasting, make_checkpoint, refresh
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from lakehouse.lake import Lake

SAFE_HOURS = 24
"""The shortest horizon at which a running query or a slow commit cannot lose its files."""

_CHECKPOINT_AFTER = 50


@dataclass(frozen=True, slots=True)
class TableMaintenance:
    """What maintenance did to one table."""

    table: str
    partitions: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    vacuumed: int = 0
    """Files removed from the disk."""


def maintain(
    lake: "Lake",
    *,
    vacuum_hours: float = 168,
    small_files: int = 16,
    log_commits: int = 2_000,
    everything: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[TableMaintenance, ...]:
    """Do everything that is due: compact, checkpoint, clean the log, vacuum.

    Args:
        lake: the lake.
        vacuum_hours: how long files that left a table stay readable for time travel.
        small_files: how many small files a partition must have to be compacted.
        log_commits: how many commits each log keeps at least for time travel.
        everything: also look for files that the log never knew, where that is slow.
        progress: called with tables done and tables in all.
    """
    sweep_spills(lake.location)
    done = []
    for number, name in enumerate(sorted(TABLES, key=_corrections_first)):
        if progress is not None:
            progress(number, len(TABLES))
        report = compact_table(lake, name, small_files=small_files)
        checkpoint(lake, name)
        shorten(lake.location, name, keep=log_commits)
        removed = vacuum_table(lake, name, hours=vacuum_hours, everything=everything)
        done.append(replace(report, vacuumed=len(removed)))
    return tuple(done)


def compact(
    lake: "Lake",
    *,
    tables: Iterable[str] | None = None,
    small_files: int = 2,
    target_bytes: int = 256 << 20,
) -> tuple[TableMaintenance, ...]:
    """Join and sort the small files of the tables named, of all when None."""
    return tuple(
        compact_table(lake, name, small_files=small_files, target_bytes=target_bytes)
        for name in sorted(TABLES if tables is None else tables, key=_corrections_first)
    )


def _corrections_first(name: str) -> bool:
    """Sort the corrections before the tables whose files are sorted apart by them."""
    return name != CORRECTIONS


def compact_table(
    lake: "Lake", name: str, *, small_files: int = 2, target_bytes: int = 256 << 20
) -> TableMaintenance:
    """Join and sort the small files of one table; partitions that are being changed are left."""
    handle = lake.table(name)
    before = list_files(handle)
    partitions = 0
    corrected, rest = _days_with_corrections(lake, name, before)
    work: list[tuple[list[ActiveFile], list[str] | None]] = [
        (group, None) for group in _groups(rest, small_files, target_bytes)
    ]
    for day in corrected:
        due = _groups(day.files, small_files, target_bytes, whole=day.is_due(small_files))
        work += [(group, day.corrections) for group in due]
    for group, corrections in work:
        try:
            with lake.lease():
                apart = None if corrections is None else _apart(lake, corrections)
                rewrite(handle, TABLES[name], lake.location, group, apart=apart)
        except OvertakenError:
            refresh(handle)
            continue
        partitions += 1
    refresh(handle)
    after = list_files(handle) if partitions else before
    return TableMaintenance(
        name, partitions, len(before), len(after), _bytes(before), _bytes(after)
    )


def checkpoint(lake: "Lake", name: str, *, commits: int = _CHECKPOINT_AFTER) -> bool:
    """Write a checkpoint when the log has grown by ``commits``, and drop log entries past retention."""
    handle = lake.table(name)
    if int(handle.version()) - last_checkpoint(lake.location, name) < commits:
        return False
    make_checkpoint(lake.location, handle)
    handle.cleanup_metadata()
    return True


def vacuum(lake: "Lake", *, hours: float = 168, dry_run: bool = False) -> dict[str, list[str]]:
    """Remove files that left the tables more than ``hours`` ago, and orphans of failed commits.

    Raises:
        ConfigurationError: the horizon is shorter than is safe beside writers and readers.
    """
    if hours < SAFE_HOURS and not dry_run:
        raise ConfigurationError(
            f"vacuum below {SAFE_HOURS} hours would take files from under running queries and "
            "commits; erasure does it while it holds the writers off"
        )
    return {name: vacuum_table(lake, name, hours=hours, dry_run=dry_run) for name in TABLES}


def vacuum_table(
    lake: "Lake", name: str, *, hours: float, dry_run: bool = False, everything: bool = False
) -> list[str]:
    """Remove one table's files that nobody needs; return their paths.

    Args:
        lake: the lake.
        name: the table.
        hours: horizon.
        dry_run: only list them.
        everything: also look for files that the log never knew (slow on object stores).
    """
    handle = lake.table(name)
    if lake.location.is_local and not dry_run:
        _sweep_orphans(Path(lake.location.table(name)), hours)
    take = partial(
        handle.vacuum,
        retention_hours=int(hours),
        enforce_retention_duration=False,
        full=everything or lake.location.is_local,
    )
    # The log goes on naming files after they went: a vacuum for them alone would only lengthen it.
    listed = take(dry_run=True)
    due = _there(lake, name, listed)
    if not dry_run and (
        due or (everything and listed)
    ):  # whoever erases leaves nothing to this look
        with lasting(lake.location, handle):
            take(dry_run=False)
    return due


def _there(lake: "Lake", name: str, paths: Sequence[str]) -> list[str]:
    """Return those of a table's files that are still there, relative to the table."""
    own = [lake.location.relative(path).removeprefix(f"{name}/") for path in paths]
    found = lake.location.files().get_file_info([f"{name}/{path}" for path in own])
    return [path for path, info in zip(own, found, strict=True) if info.type == FileType.File]


@dataclass(frozen=True, slots=True)
class _Day:
    """A day of one tenant that is over, and whose steps have corrections."""

    files: list[ActiveFile]
    """Not sorted apart by these corrections yet."""
    corrections: list[str]
    others: int
    """Total size of the day's other files, which are sorted apart already."""

    def is_due(self, small_files: int) -> bool:
        """Return whether sorting apart is worth reading the day again."""
        return len(self.files) >= small_files or _bytes(self.files) * 8 > self.others


def _days_with_corrections(
    lake: "Lake", name: str, files: Sequence[ActiveFile]
) -> tuple[list[_Day], list[ActiveFile]]:
    """Return the days whose files are sorted apart by corrections, and the files of all others."""
    if name not in BY_DAY_OF_STEP:
        return [], list(files)
    corrections = by_partition(lake.snapshot_of(CORRECTIONS))
    over = (datetime.now(UTC) - timedelta(days=2)).date().isoformat()
    own = {one.relative: one for one in files}
    days, rest = [], []
    for place, there in by_partition(own).items():
        found = [own[path] for path in there]
        day = found[0].partition.get("event_date") or over
        if place not in corrections or day >= over:
            rest += found
            continue
        mark = mark_of(corrections[place])
        fresh = [one for one in found if not is_apart(one.relative, mark)]
        others = sum(one.size for one in found) - _bytes(fresh)
        days.append(_Day(fresh, corrections[place], others))
    return days, rest


def _apart(lake: "Lake", corrections: Sequence[str]) -> SeparateFile:
    """Return the steps that files of corrections name, with their mark."""
    batches = [
        batch for file in corrections for batch in lake.rows_of_file(CORRECTIONS, file, ["step_id"])
    ]
    return SeparateFile(mark_of(corrections), pa.Table.from_batches(batches))


def _groups(
    files: Sequence[ActiveFile], small_files: int, target_bytes: int, *, whole: bool = False
) -> list[list[ActiveFile]]:
    """Return, per partition with enough small files, groups of them of about the target size.

    With ``whole`` every file is in a group.
    """
    partitions: dict[tuple[tuple[str, str | None], ...], list[ActiveFile]] = {}
    for one in files:
        if whole or one.size < target_bytes // 2:
            partitions.setdefault(tuple(one.partition.items()), []).append(one)
    groups = []
    for small in partitions.values():
        if len(small) < max(2, small_files) and not whole:
            continue
        group: list[ActiveFile] = []
        for one in sorted(small, key=lambda one: one.path):
            group.append(one)
            if _bytes(group) >= target_bytes:
                groups.append(group)
                group = []
        if len(group) > 1 or (whole and group):
            groups.append(group)
    return groups


def _sweep_orphans(root: Path, hours: float) -> None:
    """Remove what crashed compactions left: temporary commits and spill folders.

    Whoever erases does so at once: no compaction runs beside it.
    """
    horizon = time.time() - hours * 3600
    for leftover in [*root.glob("_delta_log/.*.tmp"), *root.rglob(".sorting")]:
        try:
            old = leftover.stat().st_mtime < horizon
        except FileNotFoundError:
            continue
        if old and leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        elif old:
            leftover.unlink(missing_ok=True)


def _bytes(files: Iterable[ActiveFile]) -> int:
    return sum(one.size for one in files)
