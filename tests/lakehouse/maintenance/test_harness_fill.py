"""Steps from before lakes named harnesses are filled in, once, whatever interrupts it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from governance.identifiers import Namer
from governance.records import GovernedBatch
from lakehouse.lake import Lake
from lakehouse.maintenance import harness_fill
from lakehouse.maintenance.harness_fill import fill_harnesses
from lakehouse.maintenance.verify import verify
from lakehouse.schema.tables import TABLES
from lakehouse.write.rows import to_arrow
from tests.lakehouse import make
from tests.lakehouse.schema.test_migrations import lake_of_version
from trajectory.errors import RetryableError
from trajectory.step import Harness

NAMER = Namer(b"k" * 32)
PROMPT = "You are the refund agent. Be polite to everybody who asks. It is {}."
NEW = ("agent_role", "harness_name", "harness_version")


def old_lake(root: Path) -> Lake:
    """A lake of version 5: two days of an agent whose prompt was edited on the second."""
    lake_of_version(root, 5)
    day = timedelta(days=1)
    prompts = {
        "h1": PROMPT.format("12:01"), "h2": PROMPT.format("12:02"),
        "h3": PROMPT.format("12:03").replace("polite", "brief"),
    }  # fmt: skip
    steps = [
        make.step("a", 0, harness_id="h1"), make.step("a", 1, harness_id="h2"),
        make.step("b", 0, harness_id="h3", started_at=make.NOON + day),
        make.step("b", 1, harness_id="gone", started_at=make.NOON + day),
    ]  # fmt: skip
    tables = {
        "steps": steps,
        "harnesses": [Harness("acme", name, text, "[]", "{}", make.NOON) for name, text in prompts.items()],
    }  # fmt: skip
    for name, rows in tables.items():
        kept = DeltaTable(str(root / name)).schema().fields
        table = to_arrow(TABLES[name], rows).select([field.name for field in kept])
        write_deltalake(str(root / name), table, mode="append")
    return Lake.open(str(root))


def named(lake: Lake) -> list[tuple[str, str | None, int | None]]:
    rows = lake.query(
        "SELECT step_id, harness_name, harness_version FROM steps WHERE harness_id IS NOT NULL "
        "ORDER BY step_id"
    )
    return [tuple(row.values()) for row in rows.to_pylist()]


def test_old_steps_get_their_names_and_versions_in_order_of_time(tmp_path: Path) -> None:
    lake = old_lake(tmp_path)
    before = lake.query("SELECT count(*) AS n FROM steps")["n"].to_pylist()
    assert fill_harnesses(lake, lake.lineages(), NAMER) == 3
    found = named(lake)
    name = found[0][1]
    assert found == [("a-s0", name, 1), ("a-s1", name, 1), ("b-s0", name, 2), ("b-s1", None, None)]
    assert lake.query("SELECT count(*) AS n FROM steps")["n"].to_pylist() == before
    roles = lake.query("SELECT DISTINCT agent_role FROM steps WHERE harness_name IS NOT NULL")
    assert roles["agent_role"].to_pylist() == [name]
    assert not [one for one in verify(lake).findings if "statistics" in str(one)]


def test_it_is_done_once(tmp_path: Path) -> None:
    lake = old_lake(tmp_path)
    fill_harnesses(lake, lake.lineages(), NAMER)
    version = lake.table("steps").version()
    assert fill_harnesses(lake, lake.lineages(), NAMER) == 0
    assert lake.table("steps").version() == version


def test_what_was_interrupted_goes_on_with_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = old_lake(tmp_path)
    again, days = harness_fill.again, iter([1])

    def dying(lake: Lake, table: str, work: Callable[[Any], int]) -> int:
        if next(days, None) is None:  # the second one
            raise RetryableError("killed")
        return again(lake, table, work)

    with monkeypatch.context() as patched:
        patched.setattr(harness_fill, "again", dying)
        with pytest.raises(RetryableError):
            fill_harnesses(lake, lake.lineages(), NAMER)
    assert [row[2] for row in named(lake)] == [1, 1, None, None]
    reopened = Lake.open(str(tmp_path))
    fill_harnesses(reopened, reopened.lineages(), NAMER)
    assert [row[2] for row in named(reopened)] == [1, 1, 2, None]


def test_new_steps_go_on_beside_it(tmp_path: Path) -> None:
    lake = old_lake(tmp_path)
    new = replace(make.step("new", 0), harness_name="clerk", harness_version=4, agent_role="clerk")
    lake.append(GovernedBatch(steps=(new,)), app_id="a", version=0)
    fill_harnesses(lake, lake.lineages(), NAMER)
    rows = lake.query(f"SELECT {', '.join(NEW)} FROM steps WHERE step_id = 'new-s0'").to_pylist()  # noqa: S608
    assert [tuple(row.values()) for row in rows] == [("clerk", "clerk", 4)]


def test_a_lake_that_always_named_them_is_left_alone(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    lake.append(make.batch("t"), app_id="a", version=0)
    assert fill_harnesses(lake, lake.lineages(), NAMER) == 0
