"""Brings the tables of an older lake to the present schema when it is opened.

A migration only adds. It makes missing tables and adds missing columns to the Delta schema as nullable;
rows of old files read as null. So an older
lake opens in the time of a few commits, whatever its size, and earlier versions stay readable.
The version stands in each table's properties; ``CHANGES`` says what each version brought.
"""

import time

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from lakehouse.schema.tables import LAKE_VERSION, TableSpec
from lakehouse.schema.version import check_version
from lakehouse.storage.location import Location
from lakehouse.write.table_log import lasting

_ATTEMPTS = 5
_PAUSE_SECONDS = 0.2
ADDED_PROPERTY = "headrace.addedColumns"
"""Table property: columns that older files of the table do not have."""

CHANGES: dict[int, str] = {
    1: "the first set of tables",
    2: "tables credits and prices; state_hash names the observation instead of the whole conversation; "
    "results that a model was told stand in its messages alone",
    3: "table corrections: steps, links and all that names a trajectory are read as corrected",
    4: "messages: name",
    5: "messages: content_id",
    6: "steps: agent_role, harness_name, harness_version; table harness_versions",
    7: "signals: span_unit, span_start, span_end",
    8: "tables decisions and interventions; the view decisions is named agent_steps",
    9: "prices: source, up_to_input_tokens",
    10: "table artifacts",
    11: "steps: artifacts",
    12: "steps: mean_logprob",
    13: "signals: app_id, environment",
    14: "quarantine: part_of",
}
"""What each version of the lake brought; the newest is ``LAKE_VERSION``."""


def upgrade(location: Location, spec: TableSpec, handle: DeltaTable) -> tuple[str, ...]:
    """Add what the table lacks; return the names of the columns that were added.

    Raises:
        IntegrityError: the table was written by a newer Headrace.
    """
    for _ in range(_ATTEMPTS):
        try:
            with lasting(location, handle):
                return _upgrade(location, spec, handle)
        except DeltaError:  # another process upgrades the same table
            time.sleep(_PAUSE_SECONDS)
            handle.update_incremental()
    with lasting(location, handle):
        return _upgrade(location, spec, handle)


def _upgrade(location: Location, spec: TableSpec, handle: DeltaTable) -> tuple[str, ...]:
    """Say which columns come, add them, and only then say that the table is upgraded.

    If it is killed in between, the next opening does the rest. A declared column that did not come harms nobody;
    an undeclared one would be missing from the old files.
    """
    found = check_version(location, spec, handle)
    present = {field.name for field in handle.schema().fields}
    missing = [field for field in spec.arrow if field.name not in present]
    if not missing and found == LAKE_VERSION:
        return ()
    names = tuple(field.name for field in missing)
    added = ",".join(dict.fromkeys([*added_columns(handle), *names]))
    if missing:
        handle.alter.set_table_properties({ADDED_PROPERTY: added}, raise_if_not_exists=False)
        nullable = pa.schema([field.with_nullable(True) for field in missing])
        handle.alter.add_columns(Schema.from_arrow(nullable).fields)
    handle.alter.set_table_properties(
        {**spec.configuration, ADDED_PROPERTY: added}, raise_if_not_exists=False
    )
    return names


def added_columns(handle: DeltaTable) -> tuple[str, ...]:
    """Return the columns that older files of the table do not have."""
    listed = handle.metadata().configuration.get(ADDED_PROPERTY) or ""
    return tuple(name for name in listed.split(",") if name)
