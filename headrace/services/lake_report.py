"""``headrace lake status`` for the eye: the tables, what each day brought, what expires when."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.app.home import Home
from headrace.app.installation import spool_reader
from headrace.app.master_key import Secrets
from headrace.app.output import print_fields, print_rows
from headrace.app.settings import Settings
from headrace.govern.checkpoint import CheckpointStore
from headrace.services.homes import Homes
from lakehouse.read.conversations import RunSql
from proxy.spool import Cursor, SpoolLag

if TYPE_CHECKING:
    from lakehouse.maintenance.status import LakeStatus
    from proxy.spool import SpoolLag

_ERASURES_SINCE = """
SELECT count(DISTINCT erasure_id) AS n FROM erasures WHERE status = 'done' AND recorded_at > ?
"""
_BAR = 24
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def print_status(report: "LakeStatus", lag: "SpoolLag", homes: Sequence[dict[str, Any]]) -> None:
    """Print the whole state of a lake."""
    print_rows(_tables(report), as_json=False, title=report.root, empty="no rows yet")
    most = max((day.stored_bytes for day in report.growth), default=0)
    growth = [
        {
            "day": day.day,
            "exchanges": day.exchanges,
            "stored": day.steps,
            "bytes": size(day.stored_bytes),
            "": bar(day.stored_bytes, most),
        }
        for day in report.growth
    ]
    print_rows(growth, as_json=False, title="growth per day", empty="")
    most = max((month.steps for month in report.expiring), default=0)
    expiring = [
        {"month": month.month, "steps": month.steps, "": bar(month.steps, most)}
        for month in report.expiring
    ]
    print_rows(expiring, as_json=False, title="expires", empty="")
    shared = homes if len(homes) > 1 else ()
    print_rows(shared, as_json=False, title="homes that write here", empty="")
    print_fields(_summary(report, lag), as_json=False)


def home_rows(homes: Homes, query: RunSql) -> list[dict[str, Any]]:
    """Return what each home of the lake says, and how many erasures were done since it was seen.

    Of one that never said anything there is its name alone.
    """
    other = {one.name for one in homes.with_another_key()}
    untold: list[dict[str, Any]] = [
        {
            "home": name,
            "here": False,
            "seen_at": None,
            "legal_holds": None,
            "erasures_since": None,
            "same_master_key": None,
        }
        for name in homes.untold()
    ]
    told = [
        {
            "home": one.name,
            "here": one.name == homes.name,
            "seen_at": one.seen_at,
            "legal_holds": [hold.name for hold in one.legal_holds],
            "erasures_since": query(_ERASURES_SINCE, [one.seen_at])["n"][0].as_py(),
            "same_master_key": one.name not in other,
        }
        for one in homes.all()
    ]
    return told + untold


def _tables(report: "LakeStatus") -> Sequence[dict[str, Any]]:
    return [
        {
            "table": table.table,
            "rows": table.rows,
            "files": table.files,
            "bytes": size(table.bytes),
            "version": table.version,
            "log files": table.log_files,
            "left, waiting": table.removed_files,
            "of them bytes": size(table.removed_bytes),
        }
        for table in report.tables
        if table.rows or table.removed_files
    ]


def _summary(report: "LakeStatus", lag: "SpoolLag") -> dict[str, Any]:
    newest = "none yet"
    if report.newest_exchange_at is not None and report.freshness_s is not None:
        newest = f"{report.newest_exchange_at:%Y-%m-%d %H:%M:%S} ({ago(report.freshness_s)} ago)"
    waiting = sum(table.removed_files for table in report.tables)
    reach = max(report.earliest_version_at.values(), default=None)
    return {
        "in all": f"{report.rows:,} rows, {size(report.bytes)}, {report.files:,} files",
        "newest exchange": newest,
        "waiting in the spool": f"{lag.records:,} records, {size(lag.bytes)}",
        "next vacuum frees": f"{size(report.vacuum_bytes)} in {report.vacuum_files:,} files "
        f"({waiting:,} have left the tables)",
        "past their expiry": f"{report.expired_steps:,} steps"
        + (": headrace lake expire" if report.expired_steps else ""),
        "legal holds": report.legal_holds,
        "--as-of reaches back to": "–" if reach is None else f"{reach:%Y-%m-%d %H:%M}",
    }


def size(count: int) -> str:
    """Return a number of bytes for the eye."""
    value = float(count)
    for unit in _UNITS[:-1]:
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_UNITS[-1]}"


def ago(seconds: float) -> str:
    """Return a span of time for the eye."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def bar(value: int, most: int) -> str:
    """Return a bar as long as ``value`` is beside ``most``."""
    if most <= 0:
        return ""
    eighths = round(value / most * _BAR * 8)
    if value > 0:
        eighths = max(1, eighths)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def spool_lag(settings: Settings, home: Home, secrets: Secrets) -> SpoolLag:
    """Return what the gateway has captured and governance has not yet carried into the lake."""
    reader = spool_reader(settings, home, secrets)
    return reader.lag(Cursor.from_json(CheckpointStore(home.state).load().cursor))
