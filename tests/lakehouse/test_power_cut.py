"""After a power cut the lake is what its callers were told: nothing done is lost, nothing gone returns."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lakehouse.erasure.erase import erase_subject
from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import compact, maintain, vacuum_table
from lakehouse.maintenance.verify import verify
from lakehouse.schema.tables import BATCH_TABLES
from lakehouse.write.batches import batch_tables
from lakehouse.write.intents import intents_of
from lakehouse.write.table_log import make_checkpoint
from tests.lakehouse import make
from tests.lakehouse.power import Power


def counts(lake: Lake) -> dict[str, int]:
    return {name: int(lake.table(name).count()) for name in BATCH_TABLES}


def filled(root: Path) -> Lake:
    lake = Lake.open(str(root))
    for version in range(3):
        whole = make.batch(f"t{version}")
        rows = tuple(replace(one, subjects=(f"subject_{version}",)) for one in whole.governance)
        lake.append(replace(whole, governance=rows), app_id="a", version=version)
    return lake


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("begun") / "lake"
    filled(root)
    return root


def test_a_lake_that_was_just_made_and_filled_is_there(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    with Power(root) as power:
        lake = filled(root)
        lake.append_rows("erasures", [ERASURE])
        before = counts(lake)
    power.cut()
    again = Lake.open(str(root))
    assert counts(again) == before
    assert again.committed_version("a") == 2
    assert again.query("SELECT erasure_id FROM erasures")["erasure_id"].to_pylist() == ["e"]
    assert verify(again).ok


ERASURE = {
    "tenant_id": "acme", "erasure_id": "e", "subject": "subject_x", "status": "requested",
    "recorded_at": make.NOON, "reference": None, "report": "{}",
}  # fmt: skip


class PowerCut(Exception):  # noqa: N818 - it stands for the end of everything
    """The moment at which the power goes."""


@pytest.mark.parametrize(
    "stride", [19, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])]
)
def test_a_cut_between_any_two_syncs_of_an_append_loses_and_doubles_nothing(
    begun: Path, tmp_path: Path, stride: int
) -> None:
    number, ended, before = 0, False, counts(Lake.open(str(begun)))
    while not ended:
        root = tmp_path / f"lake-{number}"
        shutil.copytree(begun, root)
        lake = Lake.open(str(root))
        ended = True
        with Power(root) as power:
            power.stop_after(number, PowerCut)
            try:
                lake.append(make.batch("new"), app_id="a", version=3)
            except PowerCut:
                ended = False
        power.cut()
        again = Lake.open(str(root))
        report = again.append(make.batch("new"), app_id="a", version=3)
        assert report.repeated or not ended, number
        assert {name: n - m for (name, n), m in zip(
            counts(again).items(), before.values(), strict=True
        )} == {name: len(getattr(make.batch("new"), name)) for name in BATCH_TABLES}, number  # fmt: skip
        assert verify(again).ok, number
        shutil.rmtree(root)
        number += stride
    assert number > 2 * len(BATCH_TABLES) - 2, "hardly anything was synced"


@pytest.mark.parametrize("table", ["messages", "steps", "exchanges"])
@pytest.mark.parametrize("left", [0, 1, 100])
def test_a_commit_that_a_cut_left_without_its_bytes_is_made_again(
    begun: Path, tmp_path: Path, table: str, left: int
) -> None:
    """A name may last before the bytes do; whoever appended was not told that it is done."""
    root = tmp_path / "lake"
    shutil.copytree(begun, root)
    lake = Lake.open(str(root))
    tables = batch_tables(make.batch("new"))
    lake.append(make.batch("new"), app_id="a", version=3)
    intents_of(lake.location).write("a", 3, tables)  # it goes last: as before the cut
    commit = max((root / table / "_delta_log").glob("*.json"))
    os.truncate(commit, left)
    again = Lake.open(str(root))
    assert again.committed_version("a") == 3
    assert again.table(table).transaction_version("a") == 3
    grown = counts(again)[table] - counts(Lake.open(str(begun)))[table]
    assert grown == tables[table].num_rows
    assert verify(again).ok


@pytest.mark.parametrize("left", [0, 1, 1000])
def test_a_checkpoint_that_a_cut_left_without_its_bytes_keeps_nobody_from_the_table(
    begun: Path, tmp_path: Path, left: int
) -> None:
    """The commits that it sums up are there still: logs are cleaned up behind lasting ones alone."""
    root = tmp_path / "lake"
    shutil.copytree(begun, root)
    lake = Lake.open(str(root))
    before = counts(lake)
    for name in ("steps", "exchanges"):
        make_checkpoint(lake.location, lake.log(name).handle)
        (checkpoint,) = (root / name / "_delta_log").glob("*.checkpoint.parquet")
        os.truncate(checkpoint, left)
    again = Lake.open(str(root))
    assert counts(again) == before
    again.append(make.batch("new"), app_id="a", version=3)
    assert verify(again).ok


@pytest.mark.parametrize("zeros", [(0.05, 0.95), (0.2, 0.6), (0.6, 0.9)])
def test_a_checkpoint_that_a_cut_left_with_a_hole_keeps_nobody_from_the_table(
    begun: Path, tmp_path: Path, zeros: tuple[float, float]
) -> None:
    """Pages reach the disk in any order, so its beginning and its end may be there."""
    root = tmp_path / "lake"
    shutil.copytree(begun, root)
    lake = Lake.open(str(root))
    before = counts(lake)
    make_checkpoint(lake.location, lake.log("steps").handle)
    (checkpoint,) = (root / "steps" / "_delta_log").glob("*.checkpoint.parquet")
    data = bytearray(checkpoint.read_bytes())
    start, end = (int(len(data) * part) for part in zeros)
    data[start:end] = bytes(end - start)
    checkpoint.write_bytes(data)
    again = Lake.open(str(root))
    assert counts(again) == before
    again.append(make.batch("new"), app_id="a", version=3)
    assert verify(again).ok


def test_a_hint_at_a_checkpoint_that_a_cut_took_keeps_nobody_from_the_table(
    begun: Path, tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    shutil.copytree(begun, root)
    lake = Lake.open(str(root))
    before = counts(lake)
    make_checkpoint(lake.location, lake.log("steps").handle)
    (checkpoint,) = (root / "steps" / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.unlink()
    assert counts(Lake.open(str(root))) == before


def compacted(lake: Lake) -> None:
    compact(lake)
    for name in BATCH_TABLES:
        vacuum_table(lake, name, hours=0)


def kept_up(lake: Lake) -> None:
    maintain(lake, small_files=2, log_commits=1)


def erased(lake: Lake) -> None:
    erase_subject(lake, "acme", ["subject_1"])


@pytest.mark.parametrize("work", [compacted, kept_up, erased])
def test_what_maintenance_and_erasure_did_stays_done(
    begun: Path, tmp_path: Path, work: Callable[[Lake], None]
) -> None:
    root = tmp_path / "lake"
    shutil.copytree(begun, root)
    lake = Lake.open(str(root))
    with Power(root) as power:
        work(lake)
        before = counts(lake)
    power.cut()
    again = Lake.open(str(root))
    assert counts(again) == before
    assert verify(again).ok
    gone = b"t1-s0"
    assert work is not erased or not [
        path for path in root.rglob("*") if path.is_file() and gone in path.read_bytes()
    ]
    again.append(make.batch("later"), app_id="a", version=3)
    assert verify(again).ok
