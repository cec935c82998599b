"""Stored rows that hold a name which was told later: rewritten in place, and gone from the history.

This is the one exception from "content is immutable". A row keeps its place and its id, so whatever names it stays
true; it holds marks where values were. Each table gets one commit. The data files that held the rows as they were
are deleted then, those that earlier commits replaced too; the days concerned stand in a note until that is done,
so that maintenance ends what a crash interrupted. Versions from before can no longer be read for these days.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake.exceptions import DeltaError

from governance.records import GovernanceRecord, Rewrite
from lakehouse.erasure.removal import again
from lakehouse.errors import in_one_line
from lakehouse.read.sources import literal
from lakehouse.schema.tables import TABLES
from trajectory.errors import RetryableError
from trajectory.files import sync_folder

if TYPE_CHECKING:
    from lakehouse.lake import Lake

type Days = set[tuple[str, str, str]]
"""Table, tenant and day."""

_NOTE = "rewritten-days.json"
_KEYS = {
    "messages": "message_id",
    "harnesses": "harness_id",
    "steps": "step_id",
    "signals": "signal_id",
    "tokens": "step_id",
}


def rewrite_rows(
    lake: "Lake", rewrites: Sequence[Rewrite], decisions: Sequence[GovernanceRecord] = ()
) -> None:
    """Write new values into stored rows and delete the files that held the old ones.

    First come the decisions that say whom the rows name: once they are rewritten, nothing in them
    tells that. The same call may be made again; of decisions on a step the latest holds.

    Raises:
        RetryableError: a table kept changing, or the disk took nothing; make the same call again.
    """
    if not rewrites:
        return
    with lake.lease(), _retryable():
        lake.append_rows("governance", decisions)
        days = {(one.table, one.tenant_id, one.event_date.isoformat()) for one in rewrites}
        noted = _noted(lake)
        if noted is None:
            forget_replaced(lake)
        _note(lake, days | (noted or set()))
        for (table, tenant, columns), some in _alike(rewrites).items():
            if table == "tokens":
                _delete(lake, tenant, some)
            else:
                _merge(lake, table, tenant, columns, some)
        forget_replaced(lake)


@contextmanager
def _retryable() -> Iterator[None]:
    """Turn what delta-rs says of a full disk into the error after which the governor waits."""
    try:
        yield
    except DeltaError as error:
        raise RetryableError(
            f"stored rows could not be rewritten ({in_one_line(error)}); nothing was lost: check disk space "
            "and permissions"
        ) from error


def forget_replaced(lake: "Lake") -> int:
    """Delete the files that held rows as they were before they were rewritten; return how many."""
    days = _noted(lake)
    gone: list[str] = []
    for table in _KEYS if days is None else sorted({table for table, _, _ in days}):
        handle = lake.table(table)
        listed = handle.vacuum(
            retention_hours=0, enforce_retention_duration=False, dry_run=True, full=False
        )
        for path in listed:
            own = lake.location.relative(path).removeprefix(f"{table}/")
            if days is None or (table, *_day_of(own)) in days:
                lake.location.remove(f"{table}/{own}")
                gone.append(f"{table}/{own}")
    if lake.location.is_local:  # before the note goes: a power cut brings none of them back
        for folder in {(lake.location.folder / path).parent for path in gone}:
            sync_folder(folder)
    if days is None or days:
        _note(lake, set())
    return len(gone)


def _day_of(file: str) -> tuple[str, str]:
    """Return tenant and day of a file, by the folders that it lies in; all its rows may be gone."""
    folders = dict(one.split("=", 1) for one in file.split("/")[:-1])
    return unquote(folders["tenant_id"]), unquote(folders["event_date"])


def _alike(
    rewrites: Sequence[Rewrite],
) -> Mapping[tuple[str, str, tuple[str, ...]], list[Rewrite]]:
    """Return rewrites by table, tenant and the columns that change."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[Rewrite]] = defaultdict(list)
    for table in _KEYS:
        for one in rewrites:
            if one.table == table:
                groups[table, one.tenant_id, tuple(sorted(one.values))].append(one)
    return groups


def _merge(
    lake: "Lake", table: str, tenant: str, columns: Sequence[str], rewrites: Sequence[Rewrite]
) -> None:
    """Put new values into rows in one commit. What the history keeps of it names columns and ids."""
    key, schema = _KEYS[table], TABLES[table].arrow
    source = pa.table(
        {
            key: pa.array([one.name for one in rewrites], schema.field(key).type),
            **{
                name: pa.array([one.values[name] for one in rewrites], schema.field(name).type)
                for name in columns
            },
        }
    )
    where = f"{_where(tenant, rewrites, 't.')} AND t.{key} = s.{key}"

    def merge(handle: Any) -> int:
        merger = handle.merge(source, where, source_alias="s", target_alias="t")
        done = merger.when_matched_update({name: f"s.{name}" for name in columns}).execute()
        return int(done["num_target_rows_updated"])

    again(lake, table, merge)


def _delete(lake: "Lake", tenant: str, rewrites: Sequence[Rewrite]) -> None:
    listed = ", ".join(literal(one.name) for one in rewrites)
    where = f"{_where(tenant, rewrites, '')} AND {_KEYS['tokens']} IN ({listed})"
    again(lake, "tokens", lambda handle: int(handle.delete(where)["num_deleted_rows"] or 0))


def _where(tenant: str, rewrites: Sequence[Rewrite], of: str) -> str:
    days = sorted({one.event_date.isoformat() for one in rewrites})
    listed = ", ".join(f"CAST({literal(day)} AS DATE)" for day in days)
    return f"{of}tenant_id = {literal(tenant)} AND {of}event_date IN ({listed})"


def _noted(lake: "Lake") -> Days | None:
    """Return the days whose replaced files must go; None where the note is damaged: it may be any."""
    said = lake.notes().get(_NOTE) or b"[]"
    try:
        return {(table, tenant, day) for table, tenant, day in json.loads(said)}
    except (ValueError, TypeError):
        return None


def _note(lake: "Lake", days: Days) -> None:
    lake.notes().put(_NOTE, json.dumps(sorted(days)).encode(), lasting=True)
