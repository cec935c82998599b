"""What a person wants to know of a lake: rows, bytes, files, freshness, growth, what expires when."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakehouse.maintenance.rewrite import list_files
from lakehouse.maintenance.table_maintenance import vacuum_table
from lakehouse.schema.tables import TABLES

if TYPE_CHECKING:
    from lakehouse.lake import Lake

_NEWEST = "SELECT max(started_at) AS t FROM exchanges WHERE started_at <= ?"


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table."""

    table: str
    rows: int
    files: int
    bytes: int
    """Of the active files, compressed."""
    version: int
    """Delta version."""
    log_files: int
    """Commits and checkpoints in the log; many of them make opening slow."""
    removed_files: int
    """Files that left the table and are still on the disk, for readers and for time travel."""
    removed_bytes: int
    vacuum_files: int
    """Those of them that left long enough ago for the next vacuum to take."""
    vacuum_bytes: int


@dataclass(frozen=True, slots=True)
class DayGrowth:
    """What one day brought."""

    day: str
    exchanges: int
    steps: int
    stored_bytes: int
    """Compressed bytes of all tables in that day's partitions."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """How many steps retention takes away in one month."""

    month: str
    steps: int


@dataclass(frozen=True, slots=True)
class LakeStatus:
    """The whole lake."""

    root: str
    tables: tuple[TableStatus, ...]
    rows: int
    bytes: int
    files: int
    newest_exchange_at: datetime | None
    """Of those that are not dated ahead of now."""
    freshness_s: float | None
    """Seconds since it began."""
    growth: tuple[DayGrowth, ...]
    """The last 14 days that have data, oldest first."""
    vacuum_files: int
    """Files that the next vacuum takes away."""
    vacuum_bytes: int
    """What it frees."""
    expiring: tuple[Expiry, ...]
    expired_steps: int
    """Past their expiry and not yet swept."""
    legal_holds: int
    earliest_version_at: Mapping[str, datetime]
    """How far back time travel goes, per table."""


def lake_status(
    lake: "Lake", *, now: datetime | None = None, vacuum_hours: float = 168
) -> LakeStatus:
    """Return the state of the lake.

    Args:
        lake: the lake.
        now: the moment that counts as now.
        vacuum_hours: how long files that left a table stay.
    """
    moment = now or datetime.now(UTC)
    tables = tuple(_table_status(lake, name, vacuum_hours) for name in TABLES)
    newest = lake.query(_NEWEST, parameters=[moment])["t"][0].as_py()
    held = lake.query(
        "SELECT count(*) FILTER (expires_at <= ? AND NOT legal_hold) AS expired, "
        "count(*) FILTER (legal_hold) AS held FROM governance",
        parameters=[moment],
    ).to_pylist()[0]
    return LakeStatus(
        root=lake.location.root,
        tables=tables,
        rows=sum(table.rows for table in tables),
        bytes=sum(table.bytes for table in tables),
        files=sum(table.files for table in tables),
        newest_exchange_at=newest,
        freshness_s=None if newest is None else (moment - newest).total_seconds(),
        growth=_growth(lake),
        vacuum_files=sum(table.vacuum_files for table in tables),
        vacuum_bytes=sum(table.vacuum_bytes for table in tables),
        expiring=_expiring(lake, moment),
        expired_steps=held["expired"],
        legal_holds=held["held"],
        earliest_version_at={name: _earliest(lake, name) for name in TABLES},
    )


def _table_status(lake: "Lake", name: str, vacuum_hours: float) -> TableStatus:
    handle = lake.table(name)
    files = list_files(handle)
    removed = vacuum_table(lake, name, hours=0, dry_run=True)
    due = vacuum_table(lake, name, hours=vacuum_hours, dry_run=True) if removed else []
    sizes = _sizes(lake, name)
    return TableStatus(
        table=name,
        rows=sum(one.rows for one in files),
        files=len(files),
        bytes=sum(one.size for one in files),
        version=int(handle.version()),
        log_files=sum(path.startswith("_delta_log/") for path in sizes),
        removed_files=len(removed),
        removed_bytes=sum(sizes.get(path, 0) for path in removed),
        vacuum_files=len(due),
        vacuum_bytes=sum(sizes.get(path, 0) for path in due),
    )


def _sizes(lake: "Lake", name: str) -> dict[str, int]:
    """Return every file that lies in a table's folder, or its prefix of a store, with its bytes."""
    from pyarrow.fs import FileSelector, FileType

    found = lake.location.files().get_file_info(FileSelector(name, recursive=True))
    return {
        info.path.removeprefix(f"{name}/"): info.size or 0
        for info in found
        if info.type == FileType.File
    }


def _growth(lake: "Lake") -> tuple[DayGrowth, ...]:
    stored: dict[str, int] = {}
    for name in TABLES:
        for one in list_files(lake.table(name)):
            day = one.partition.get("event_date")
            if day is not None:
                stored[day] = stored.get(day, 0) + one.size
    rows = lake.query(
        "SELECT event_date::VARCHAR AS day, count(*) AS exchanges, "
        "count(*) FILTER (disposition = 'stored') AS steps FROM exchanges "
        "GROUP BY ALL ORDER BY day DESC LIMIT 14"
    ).to_pylist()
    return tuple(
        DayGrowth(row["day"], row["exchanges"], row["steps"], stored.get(row["day"], 0))
        for row in reversed(rows)
    )


def _expiring(lake: "Lake", moment: datetime) -> tuple[Expiry, ...]:
    rows = lake.query(
        "SELECT strftime(expires_at, '%Y-%m') AS month, count(*) AS steps FROM governance "
        "WHERE expires_at > ? AND NOT legal_hold GROUP BY ALL ORDER BY month LIMIT 12",
        parameters=[moment],
    ).to_pylist()
    return tuple(Expiry(row["month"], row["steps"]) for row in rows)


def _earliest(lake: "Lake", name: str) -> datetime:
    """Return from when on a table's states can be read: its log tells of them, no vacuum took files."""
    entries = lake.table(name).history()
    first = min((int(entry.get("timestamp", 0)) for entry in entries), default=0)
    taken = [
        int(entry["timestamp"]) - int(entry["operationParameters"]["specifiedRetentionMillis"])
        for entry in entries
        if entry.get("operation") == "VACUUM START"
    ]
    return datetime.fromtimestamp(max(first, *taken) / 1000 if taken else first / 1000, tz=UTC)
