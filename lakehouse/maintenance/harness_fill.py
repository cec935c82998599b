"""Fills in who acted, and with which version of a harness, in steps from before lakes said so.

Opening an older lake only adds the columns. This goes through it day by day, oldest first, beside
writers and readers; killed at any moment, the next round does the rest. It runs once: a note says so.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from governance.identifiers import Namer
from governance.passes.identity import LineageRegister, Sightings
from lakehouse.erasure.removal import again
from lakehouse.read.sources import literal
from lakehouse.schema.migrations import added_columns
from lakehouse.schema.tables import TABLES
from trajectory.harness.lineage import Sighting
from trajectory.step import Harness

if TYPE_CHECKING:
    from lakehouse.lake import Lake

_NOTE = "harnesses-filled.json"
_COLUMN = "harness_name"
_DAYS = """
SELECT DISTINCT tenant_id, event_date FROM steps
WHERE harness_id IS NOT NULL AND harness_name IS NULL ORDER BY event_date, tenant_id
"""
_STEPS = """
SELECT s.step_id, s.app_id, s.agent_role, s.started_at, s.harness_id, h.system_prompt, h.tools
FROM steps s
JOIN (SELECT tenant_id, harness_id, arg_min(system_prompt, first_seen_at) AS system_prompt,
             arg_min(tools, first_seen_at) AS tools
      FROM harnesses GROUP BY ALL) h
  ON s.tenant_id = h.tenant_id AND s.harness_id = h.harness_id
WHERE s.tenant_id = $tenant AND s.event_date = $day AND s.harness_name IS NULL
ORDER BY s.started_at, s.step_id
"""


def fill_harnesses(lake: "Lake", register: LineageRegister, namer: Namer) -> int:
    """Write role, name and version into steps that lack them; return how many.

    A step whose harness is gone (it expired) keeps nothing.

    Raises:
        RetryableError: the table kept changing; make the same call again.
    """
    if _COLUMN not in added_columns(lake.table("steps")) or lake.notes().get(_NOTE):
        return 0
    sightings = Sightings(namer)
    filled = 0
    for day in lake.query_stored(_DAYS).to_pylist():
        with lake.lease():
            filled += _fill_day(lake, register, sightings, day)
    lake.notes().put(_NOTE, b"{}", lasting=True)
    return filled


def _fill_day(
    lake: "Lake", register: LineageRegister, sightings: Sightings, day: Mapping[str, Any]
) -> int:
    tenant = day["tenant_id"]
    rows = lake.query_stored(
        _STEPS, parameters={"tenant": tenant, "day": day["event_date"]}
    ).to_pylist()
    seen: list[Sighting] = [
        sightings.of(
            Harness(
                tenant_id=tenant,
                harness_id=row["harness_id"],
                system_prompt=row["system_prompt"],
                tools=row["tools"],
                sampling="{}",
                first_seen_at=row["started_at"],
            ),
            row["app_id"],
            None,
        )
        for row in rows
    ]
    versions = register.number(seen) if seen else {}
    values: dict[str, list[Any]] = defaultdict(list)
    for row, one in zip(rows, seen, strict=True):
        version = versions[one.key]
        values["step_id"].append(row["step_id"])
        values["agent_role"].append(row["agent_role"] or version.harness_name)
        values["harness_name"].append(version.harness_name)
        values["harness_version"].append(version.harness_version)
    return _merge(lake, tenant, str(day["event_date"]), values) if rows else 0


def _merge(lake: "Lake", tenant: str, day: str, values: Mapping[str, Sequence[Any]]) -> int:
    """Put the values into the rows of a day in one commit."""
    schema = TABLES["steps"].arrow
    source = pa.table({name: pa.array(v, schema.field(name).type) for name, v in values.items()})
    where = (
        f"t.tenant_id = {literal(tenant)} AND t.event_date = CAST({literal(day)} AS DATE) "
        "AND t.step_id = s.step_id"
    )
    columns = [name for name in values if name != "step_id"]

    def merge(handle: Any) -> int:
        merger = handle.merge(source, where, source_alias="s", target_alias="t")
        done = merger.when_matched_update({name: f"s.{name}" for name in columns}).execute()
        return int(done["num_target_rows_updated"])

    return again(lake, "steps", merge)
