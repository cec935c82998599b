"""The public Python interface: a lake read as frames, Arrow tables and SQL."""

from datetime import UTC, datetime
from pathlib import Path

import polars
import pytest

import headrace
from lakehouse.lake import Lake
from tests.lakehouse import make
from trajectory.errors import ConfigurationError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lake = Lake.open(str(tmp_path / "lake"))
    for version in range(2):
        lake.append(make.batch(f"t{version}", steps=3), app_id="a", version=version)
    return tmp_path / "lake"


def test_only_this_is_public() -> None:
    assert headrace.__all__ == ["open_lake"]


def test_every_table_and_view_is_a_frame_and_an_arrow_table(folder: Path) -> None:
    with headrace.open_lake(folder) as lake:
        for name in (*lake.tables, *lake.views):
            rows = lake.arrow(name)
            frame = lake.frame(name)
            assert frame.collect_schema().names() == rows.schema.names, name
            assert frame.collect().height == rows.num_rows, name


def test_a_frame_reads_what_it_needs(folder: Path) -> None:
    with headrace.open_lake(folder) as lake:
        steps = lake.frame("steps")
        found = (
            steps.filter(polars.col("trajectory_id") == "t1")
            .group_by("model_served")
            .agg(polars.len().alias("steps"))
            .collect()
        )
        assert found.to_dicts() == [{"model_served": "m@1", "steps": 3}]
        assert steps.select("step_id").head(2).collect().shape == (2, 1)
        assert steps.select(polars.len()).collect().item() == 6


def test_an_earlier_state_is_read_by_version_and_by_moment(folder: Path) -> None:
    with headrace.open_lake(folder) as lake:
        versions, moment = lake.versions(), datetime.now(UTC)
    written = Lake.open(str(folder))
    written.append(make.batch("t2", steps=3), app_id="a", version=2)
    for at, steps in ((None, 9), (versions, 6), (moment, 6)):
        with headrace.open_lake(folder, at=at) as lake:
            assert lake.arrow("steps").num_rows == steps
            assert lake.frame("steps").collect().height == steps
            counted = lake.sql("SELECT count(*) AS n FROM steps WHERE step_index >= ?", [0])
            assert counted["n"].to_pylist() == [steps]


def test_nothing_is_written(folder: Path) -> None:
    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}

    before = files()
    with headrace.open_lake(folder) as lake:
        lake.frame("trajectories").collect()
    assert files() == before


def test_errors_say_what_to_do(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds no lake"):
        headrace.open_lake(tmp_path / "nothing")
    with headrace.open_lake(folder) as lake:
        with pytest.raises(ConfigurationError, match=r"no table or view 'step'.*steps"):
            lake.frame("step")
        frame = lake.frame("steps")
    with pytest.raises(ConfigurationError, match="open it again"):
        lake.arrow("steps")
    with pytest.raises(Exception, match="open it again"):
        frame.collect()
    lake.close()
