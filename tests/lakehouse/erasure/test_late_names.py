"""Rows that are rewritten in place: the files that held them before are gone at once."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from governance.records import Rewrite
from lakehouse.erasure.late_names import forget_replaced, rewrite_rows
from lakehouse.lake import Lake
from lakehouse.maintenance.verify import verify
from tests.lakehouse import make
from tests.lakehouse.power import Power
from tests.support.full_disk import full_disk
from trajectory.errors import RetryableError


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


def test_a_full_disk_is_an_error_after_which_the_same_is_tried_again(tmp_path: Path) -> None:
    """The governor waits then; another error would end it, and the next start would meet the same batch."""
    lake = Lake.open(str(tmp_path))
    lake.append(make.batch("t0"), app_id="a", version=0)
    version = lake.table("messages").version()
    with pytest.raises(RetryableError, match="disk space"), full_disk():
        _merged(lake)
    assert version == lake.table("messages").version()
    rewritten(lake)
    assert "[]" in lake.query("SELECT parts FROM messages")["parts"].to_pylist()


def _merged(lake: Lake) -> None:
    """Rewrite a row where its note is written already, as a second try finds it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakehouse.erasure.late_names._note", lambda *_: None)
        rewritten(lake)


class CutError(Exception):
    """Ends a rewrite where the power goes."""


def rewritten(lake: Lake) -> None:
    (first, *_) = lake.query("SELECT message_id, event_date FROM messages").to_pylist()
    value = {"parts": "[]"}
    rewrite_rows(
        lake, [Rewrite("acme", "messages", first["message_id"], first["event_date"], value)]
    )


@pytest.mark.parametrize("syncs", range(12))
def test_after_a_power_cut_maintenance_still_knows_what_has_to_go(
    tmp_path: Path, syncs: int
) -> None:
    """Else the files with the names as they were would lie there until a vacuum."""
    root = tmp_path / "lake"
    Lake.open(str(root)).append(make.batch("t0"), app_id="a", version=0)
    before = {str(path) for path in (root / "messages").rglob("*.parquet")}
    with Power(root) as power:
        power.stop_after(syncs, CutError)
        with suppress(CutError):
            rewritten(Lake.open(str(root)))
    power.cut()
    lake = Lake.open(str(root))
    forget_replaced(lake)
    left = {str(path) for path in (root / "messages").rglob("*.parquet")}
    assert left & before == {*lake.snapshot_of("messages")} & before


@pytest.mark.parametrize("note", [b"", b'[["messages","acm', b"\0\0\0\0", b"3"])
def test_a_damaged_note_stops_nobody_and_leaves_nothing(tmp_path: Path, note: bytes) -> None:
    lake = Lake.open(str(tmp_path))
    lake.append(make.batch("t0"), app_id="a", version=0)
    held = lake.snapshot_of("messages")
    rewritten(lake)
    for path in held:
        Path(path).write_bytes(b"a file that a killed rewrite left")
    lake.notes().put("rewritten-days.json", note)
    forget_replaced(lake)
    assert not note or not any(Path(path).exists() for path in held)
    rewritten(lake)
