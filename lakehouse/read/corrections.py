"""Reading tables as corrected: what late exchanges changed about steps that were stored before.

Nothing is rewritten. While a lake holds no corrections its tables are read as they are, and so are the files of
tenants and days whose steps none concerns. The other files of a table that names steps are read in two parts. The
rows of steps without a correction get every filter pushed down to the files. The few others are read with their
corrected values. What holds is held in memory: found once for each version of the corrections, not in each query.

Maintenance sorts the steps of past days into files without and files with corrected steps. It marks
them with the files of corrections that this was true of. As long as these are the present ones, the
files without are read as they are.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from lakehouse.read.helper_tables import HelperTable
from lakehouse.schema.tables import TableSpec

CORRECTIONS = "corrections"
WITHOUT, ONLY = "without", "only"
"""Kinds of files that were sorted apart: without corrected steps, and with no others."""

_LATEST = "corrected.latest"
LATEST_CORRECTIONS = HelperTable(
    source=CORRECTIONS,
    needed_by=CORRECTIONS,
    prepare=(
        "CREATE SCHEMA IF NOT EXISTS corrected",
        f"CREATE OR REPLACE TABLE {_LATEST} AS FROM corrections LIMIT 0",
    ),
    find=f"INSERT INTO {_LATEST} SELECT * FROM corrections QUALIFY row_number() OVER "  # noqa: S608
    "(PARTITION BY tenant_id, step_id ORDER BY recorded_at DESC, step_index) = 1",
)
"""What holds of each corrected step."""
_STAYS = "c.context_keep IS NULL"
_STEP_COLUMNS = {
    "trajectory_id": "c.trajectory_id",
    "step_index": "c.step_index",
    "parent_step_id": f"CASE WHEN {_STAYS} THEN t.parent_step_id ELSE c.parent_step_id END",
    "branch": "c.branch",
    "role_in_graph": "c.role_in_graph",
    "key_source": "c.key_source",
    "context_keep": f"CASE WHEN {_STAYS} THEN t.context_keep ELSE c.context_keep END",
    "context_message_ids": f"CASE WHEN {_STAYS} THEN t.context_message_ids "
    "ELSE t.context_message_ids[c.context_skip + 1:] END",
    "tool_results": f"CASE WHEN {_STAYS} OR t.kind = 'tool' THEN t.tool_results "
    "ELSE t.tool_results[c.results_skip + 1:] END",
    "retry_of": "c.retry_of",
    "session_hint": "c.session_hint",
    "group_id": "c.group_id",
    "replay_class": "coalesce(c.replay_class, t.replay_class)",
    "ext": "CASE WHEN c.side_effect IS NULL THEN t.ext ELSE json_merge_patch("
    "t.ext, json_object('side_effect', c.side_effect))::VARCHAR END",
}
_TRAJECTORY = {"trajectory_id": "coalesce(c.trajectory_id, t.trajectory_id)"}
_COLUMNS: dict[str, dict[str, str]] = {
    "steps": _STEP_COLUMNS,
    "tokens": _TRAJECTORY,
    "governance": _TRAJECTORY,
    "quarantine": _TRAJECTORY,
    "credits": _TRAJECTORY,
    "exchanges": {
        **_TRAJECTORY,
        "disposition": "CASE WHEN c.duplicate_of IS NULL THEN t.disposition ELSE 'duplicate' END",
    },
}
"""What stands for a column of a corrected step (alias c) and its stored row (alias t)."""
_HIDES_DUPLICATES = frozenset({"steps", "tokens", "credits"})
BY_DAY_OF_STEP = frozenset({"steps", "tokens", "governance", "quarantine", "exchanges"})
"""Tables whose partition is the day of the step, as that of its corrections is."""

CORRECTED = frozenset({*_COLUMNS, "links", "signals"})
"""The tables that are read as corrected."""


class CorrectedFiles(NamedTuple):
    """The files of a table, by whether a correction may concern their rows."""

    plain: list[str]
    """Without corrected steps."""
    only: list[str]
    """With corrected steps only."""
    mixed: list[str]
    """With any."""


def parted(spec: TableSpec, files: Sequence[str], corrections: Iterable[str]) -> CorrectedFiles:
    """Part files by the partitions that have corrections.

    Args:
        spec: one of ``CORRECTED``.
        files: addresses of its files, each in the folder of its partition.
        corrections: addresses of the files of the table ``corrections``.
    """
    depth = 2 if spec.name in BY_DAY_OF_STEP else 1
    marks = {place: mark_of(there) for place, there in by_partition(corrections, depth).items()}
    found = CorrectedFiles([], [], [])
    for file in files:
        mark = marks.get(_partition(file, depth))
        if mark is None or file.endswith(_ending(WITHOUT, mark)):
            found.plain.append(file)
        else:
            (found.only if file.endswith(_ending(ONLY, mark)) else found.mixed).append(file)
    return found


def by_partition(files: Iterable[str], depth: int = 2) -> dict[tuple[str, ...], list[str]]:
    """Return files by tenant, and with depth 2 by day, as their addresses write them."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for file in files:
        found[_partition(file, depth)].append(file)
    return found


def _partition(file: str, depth: int) -> tuple[str, ...]:
    folders = [one for one in file.split("/")[:-1] if one.startswith(("tenant_id=", "event_date="))]
    return tuple(folders[:depth])


def mark_of(corrections: Iterable[str]) -> str:
    """Return the mark of these files of corrections: no others have it."""
    names = sorted(file.rpartition("/")[2] for file in corrections)
    return blake2b("\n".join(names).encode(), digest_size=12).hexdigest()


def is_apart(file: str, mark: str) -> bool:
    """Return whether a file was sorted apart by the corrections of a mark."""
    return file.endswith((_ending(WITHOUT, mark), _ending(ONLY, mark)))


def _ending(kind: str, mark: str) -> str:
    return f".{kind}-{mark}.zstd.parquet"


def untouched_rows(spec: TableSpec, source: str) -> str:
    """Return a SELECT of the stored rows that no correction concerns; see :func:`corrected_rows`."""
    own = "to_step_id" if spec.name == "links" else "step_id"
    return (
        f"SELECT {_columns(spec)} FROM {source} t ANTI JOIN {_LATEST} c "  # noqa: S608
        f"ON t.tenant_id = c.tenant_id AND t.{own} = c.step_id"
    )


def corrected_rows(spec: TableSpec, source: str) -> str:
    """Return a SELECT of the rows that a correction concerns, with what holds of them now.

    Args:
        spec: one of ``CORRECTED``; the table ``corrections`` is bound already.
        source: what stands after FROM to read the stored rows.
    """
    if spec.name == "links":
        return _links(spec)
    replaced = _COLUMNS[spec.name]
    now = ", ".join(
        f'{replaced[name]} AS "{name}"' if name in replaced else f't."{name}"'
        for name in spec.arrow.names
    )
    day = " AND t.event_date = c.event_date" if spec.name in BY_DAY_OF_STEP else ""
    hidden = " WHERE c.duplicate_of IS NULL" if spec.name in _HIDES_DUPLICATES else ""
    return (
        f"SELECT {now} FROM {source} t JOIN {_LATEST} c "  # noqa: S608
        f"ON t.tenant_id = c.tenant_id AND t.step_id = c.step_id{day}{hidden}"
    )


def _columns(spec: TableSpec) -> str:
    return ", ".join(f't."{name}"' for name in spec.arrow.names)


def _links(spec: TableSpec) -> str:
    """A corrected step's links are those that its correction names, and no others."""
    values = {"to_step_id": "c.step_id", "tenant_id": "c.tenant_id"}
    values |= {
        name: f"c.link.{name}"
        for name in ("kind", "from_step_id", "trajectory_id", "recorded_at", "key_source")
    }
    values["event_date"] = "c.link.recorded_at::DATE"
    named = ", ".join(f'{values[name]} AS "{name}"' for name in spec.arrow.names)
    return (
        f"SELECT {named} FROM (SELECT tenant_id, step_id, unnest(links) AS link "  # noqa: S608
        f"FROM {_LATEST} WHERE duplicate_of IS NULL) c"
    )


def signals_as_corrected(spec: TableSpec, source: str) -> str:
    """Return a SELECT of signals that a correction may concern, with where they belong now.

    What was said of a step goes with it; of a whole trajectory, with the step that began it.
    """
    now = ", ".join(
        "coalesce(c.trajectory_id, a.trajectory_id, t.trajectory_id) AS trajectory_id"
        if name == "trajectory_id"
        else f't."{name}"'
        for name in spec.arrow.names
    )
    return (
        f"SELECT {now} FROM {source} t "  # noqa: S608
        f"LEFT JOIN {_LATEST} c ON t.tenant_id = c.tenant_id AND t.step_id = c.step_id "
        f"LEFT JOIN (SELECT * FROM {_LATEST} WHERE began) a ON t.tenant_id = a.tenant_id "
        "AND t.step_id IS NULL AND t.trajectory_id = a.stored_trajectory_id"
    )
