"""Rows that are rewritten in place: the files that held them before are gone at once."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from governance.records import Rewrite
from lakehouse.erasure.late_names import rewrite_rows
from lakehouse.lake import Lake
from lakehouse.maintenance.verify import verify
from tests.lakehouse import make


def test_a_day_of_which_nothing_is_left_leaves_no_file(tmp_path: Path) -> None:
    """One tenant has a name that folders write otherwise."""
    lake = Lake.open(str(tmp_path))
    for number, tenant in enumerate(["acme", "a b/ü%20"]):
        whole = make.batch(f"t{number}", steps=1)
        tokens = tuple(replace(one, tenant_id=tenant) for one in whole.tokens)
        later = tuple(
            replace(one, step_id="kept", started_at=one.started_at + timedelta(days=3))
            for one in tokens
        )
        lake.append(replace(whole, tokens=(*tokens, *later)), app_id="a", version=number)
        (one,) = tokens
        rewrite_rows(lake, [Rewrite(tenant, "tokens", one.step_id, one.started_at.date(), {})])
    left = sorted(path for path in (tmp_path / "tokens").rglob("*.parquet"))
    assert [str(path) for path in left] == sorted(lake.snapshot_of("tokens"))
    assert lake.query("SELECT DISTINCT step_id FROM tokens")["step_id"].to_pylist() == ["kept"]
    assert {one.check for one in verify(lake).findings if one.severity == "error"} <= {
        "tokens belong to steps"
    }
