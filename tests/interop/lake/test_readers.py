"""Any Delta reader opens the tables as they are, same rows as ours: after compaction, deletes, an
erasure with its checkpoint and vacuum, and commits that we wrote ourselves."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest
from deltalake import DeltaTable, QueryBuilder

from lakehouse.erasure.erase import erase_subject
from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import compact
from lakehouse.schema.tables import TABLES
from tests.lakehouse import make

ROOT = Path(__file__).resolve().parents[3]
READ = ("steps", "messages", "governance", "tokens", "signals", "exchanges")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake.open(str(tmp_path_factory.mktemp("readers") / "lake"))
    for number in range(3):
        made.append(make.batch(f"t{number}"), app_id="a", version=number)
    compact(made, tables=["steps", "messages"], small_files=2)
    made.table("steps").delete("trajectory_id = 't2'")
    whole = make.batch("t3")
    about = tuple(replace(row, subjects=("p-1",)) for row in whole.governance)
    made.append(replace(whole, governance=about), app_id="a", version=3)
    assert erase_subject(made, "acme", ["p-1"]).reach.trajectories == ("t3",)
    made.append(make.batch("t4"), app_id="a", version=4)
    return made


def ours(lake: Lake) -> dict[str, int]:
    return {
        name: lake.query(f"SELECT count(*) AS n FROM {name}")["n"][0].as_py()  # noqa: S608
        for name in READ
    }


def test_tables_ask_no_reader_for_anything_new(lake: Lake) -> None:
    for name in TABLES:
        protocol = lake.table(name).protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)


def test_pandas_through_delta_rs(lake: Lake) -> None:
    for name, count in ours(lake).items():
        assert len(DeltaTable(lake.location.table(name)).to_pandas()) == count
    frame = DeltaTable(lake.location.table("steps")).to_pandas(
        columns=["trajectory_id", "tool_calls"], filters=[("tenant_id", "=", "acme")]
    )
    assert sorted(set(frame["trajectory_id"])) == ["t0", "t1", "t4"]


def test_polars(lake: Lake) -> None:
    for name, count in ours(lake).items():
        assert (
            polars.scan_delta(lake.location.table(name)).select(polars.len()).collect().item()
            == count
        )
    steps = polars.scan_delta(lake.location.table("steps")).filter(polars.col("step_index") == 1)
    assert sorted(steps.collect()["step_id"]) == ["t0-s1", "t1-s1", "t4-s1"]


def test_duckdb_over_the_file_list(lake: Lake) -> None:
    for name, count in ours(lake).items():
        files = DeltaTable(lake.location.table(name)).file_uris()
        found = duckdb.execute(
            "SELECT count(*) FROM read_parquet(?, hive_partitioning = true)", [files]
        ).fetchall()
        assert found == [(count,)]


def test_datafusion_in_delta_rs(lake: Lake) -> None:
    builder = QueryBuilder().register("steps", DeltaTable(lake.location.table("steps")))
    found: Any = builder.execute("SELECT count(*) AS n FROM steps").read_all()
    assert polars.DataFrame(found)["n"].to_list() == [6]


@pytest.mark.slow
def test_spark(lake: Lake) -> None:
    made = subprocess.run(
        [str(ROOT / "scripts" / "test-environment"), "readers"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip(f"the environment of readers cannot be made: {made.stderr[-300:]}")
    python = ROOT / made.stdout.strip()
    reader = str(Path(__file__).with_name("spark_reader.py"))
    before = str(
        lake.table("steps").version() - 1
    )  # that of t4; the erasure ended what was earlier
    done = subprocess.run(
        [str(python), "-P", reader, lake.location.root, before, *READ],
        capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert found["counts"] == ours(lake)
    assert found["steps"] == [["acme", name, 2, 10] for name in ("t0", "t1", "t4")]
    assert found["earlier"] == 4


def test_the_code_of_the_docs_runs(lake: Lake) -> None:
    text = (ROOT / "docs" / "data-scientist.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    local = [block for block in blocks if "grpc" not in block and "spark" not in block]
    assert len(local) >= 2
    code = "\n".join(local)
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=lake.location.folder.parent, env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
