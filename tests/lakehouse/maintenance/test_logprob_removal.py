"""Log probabilities in ``ext`` of older steps go, once, from the table and from its files."""

import json
from dataclasses import replace
from pathlib import Path

from deltalake import DeltaTable, write_deltalake

from lakehouse.lake import Lake
from lakehouse.maintenance.logprob_removal import remove_logprobs
from lakehouse.maintenance.scan import scan
from lakehouse.schema.tables import TABLES
from lakehouse.write.rows import to_arrow
from tests.lakehouse import make
from tests.lakehouse.schema.test_migrations import lake_of_version

PIECE = "Quillfeather"
TOLD = {"content": [{"token": PIECE, "logprob": -0.1}]}
KEPT = {"request": {"logprobs": True, "top_logprobs": 2}, "response": {"service_tier": "default"}}


def old_lake(root: Path) -> Lake:
    """A lake of version 11: two steps with log probabilities, one without."""
    lake_of_version(root, 11)
    ext = {**KEPT, "response": {**KEPT["response"], "logprobs": TOLD}}
    alone = {"response": {"other_choices": [{"index": 1, "logprobs": TOLD}], "logprobs": TOLD}}
    steps = [
        replace(make.step("a", at), ext=json.dumps(said))
        for at, said in enumerate((ext, alone, KEPT))
    ]
    kept = DeltaTable(str(root / "steps")).schema().fields
    table = to_arrow(TABLES["steps"], steps).select([field.name for field in kept])
    write_deltalake(str(root / "steps"), table, mode="append")
    return Lake.open(str(root))


def test_pieces_go_from_rows_and_files_and_the_rest_stays(tmp_path: Path) -> None:
    lake = old_lake(tmp_path)
    assert scan([tmp_path], [PIECE]).hits
    before = lake.query("SELECT * EXCLUDE (ext) FROM steps ORDER BY step_id").to_pylist()
    assert remove_logprobs(lake) == 2
    rows = lake.query("SELECT ext FROM steps WHERE trajectory_id = 'a' ORDER BY step_id")
    assert [json.loads(ext) for ext in rows["ext"].to_pylist()] == [
        KEPT, {"response": {"other_choices": [{"index": 1}]}}, KEPT,
    ]  # fmt: skip
    assert lake.query("SELECT * EXCLUDE (ext) FROM steps ORDER BY step_id").to_pylist() == before
    assert not scan([tmp_path], [PIECE]).hits
    version = lake.table("steps").version()
    assert remove_logprobs(Lake.open(str(tmp_path))) == 0
    assert lake.table("steps").version() == version


def test_a_lake_that_never_held_them_is_left_alone(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    lake.append(make.batch("t"), app_id="a", version=0)
    version = lake.table("steps").version()
    assert remove_logprobs(lake) == 0
    assert lake.table("steps").version() == version
