"""The files of views run in a plain DuckDB over the lake's tables, and give what the lake gives."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from lakehouse.lake import Lake
from lakehouse.read.views.catalog import DEFINITIONS, FILES, HELPERS, VIEWS, path_of
from lakehouse.schema.tables import TABLES
from tests.lakehouse import make


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with rewards, a message that two writers stored, and feedback on a session."""
    made = Lake.open(str(tmp_path_factory.mktemp("views") / "lake"))
    for version, name in enumerate(("t1", "t2", "t3")):
        batch = make.batch(name, steps=3, reward=float(version % 2))
        steps = tuple(replace(step, session_hint="s") for step in batch.steps)
        made.append(replace(batch, steps=steps), app_id="a", version=version)
    made.append_rows("messages", make.batch("t1").messages)
    said = replace(make.signal("x", 0.5), signal_id="late", trajectory_id=None)
    made.append_rows("signals", [replace(said, target_kind="session", target_id="s")])
    return made


def rows_of(table: pa.Table) -> Counter[str]:
    """Return the rows; of floats the last digits are left out, which the order of a sum decides."""
    return Counter(
        repr({k: f"{v:.12g}" if isinstance(v, float) else v for k, v in row.items()})
        for row in table.to_pylist()
    )


def test_a_plain_duckdb_runs_every_file(lake: Lake, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "plain.duckdb")) as plain:
        plain.execute("SET TimeZone = 'UTC'")
        for name in TABLES:
            plain.register("rows", lake.query(f"SELECT * FROM {name}"))  # noqa: S608
            plain.execute(f"CREATE TABLE {name} AS FROM rows")
        for file in ("helpers", *FILES):
            plain.execute(path_of(file).read_text())
        filled = 0
        for view in VIEWS:
            sql = f"SELECT * FROM {view.name}"  # noqa: S608
            found = plain.sql(sql).to_arrow_table()
            assert rows_of(found) == rows_of(lake.query(sql)), view.name
            filled += found.num_rows > 0
        listed = plain.execute("SELECT view_name, comment FROM duckdb_views() WHERE NOT internal")
        assert dict(listed.fetchall()).items() >= {(one.name, one.comment) for one in VIEWS}
    assert filled > len(VIEWS) / 2


def test_every_file_is_read_whole() -> None:
    """What the reader of the files finds is all that DuckDB finds in them."""
    said = "".join(path_of(file).read_text() for file in ("helpers", *FILES))
    statements = [one.query.strip() for one in duckdb.extract_statements(said)]
    made = [sql for sql in statements if "CREATE OR REPLACE" in sql]
    assert len(made) == len(DEFINITIONS) + len(HELPERS)
    assert sum(sql.startswith("COMMENT ON VIEW") for sql in statements) == len(VIEWS)
