"""When the governing process's memory is lost or damaged, the lake gives it back."""

import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.govern.checkpoint import (
    NO_MEMORY,
    Checkpoint,
    CheckpointStore,
    PendingBatch,
    installation_name,
    missing_batches,
)
from headrace.govern.packing import packed_json, unpacked
from lakehouse.lake import Lake
from lakehouse.storage.location import Location
from lakehouse.storage.notes import Notes
from tests.headrace.building import pipeline as build_pipeline
from tests.headrace.test_pipeline import EXCHANGES, check, fill, run

TABLE = """
SELECT exchange_id, trajectory_id, step_id, step_index, parent_step_id, context_keep, branch
FROM steps ORDER BY exchange_id
"""


def steps_of(home: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Lake.open(str(home / "lake")).query(TABLE).to_pylist()
    return found


def carry(home: Path, batches: int | None = None) -> None:
    pipeline = build_pipeline(home, batch_records=7, name="home")
    while batches != 0 and pipeline.run_batch() is not None:
        batches = None if batches is None else batches - 1


def lose(home: Path) -> None:
    shutil.rmtree(home / "state")


def damage(home: Path) -> None:
    (home / "state" / "checkpoint.json").write_text('{"version": 1, "app', encoding="utf-8")


def fall_back(home: Path) -> None:
    """Restore an older copy of the state folder, as a backup would."""
    shutil.rmtree(home / "state")
    shutil.copytree(home / "earlier", home / "state")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose spool was carried without disturbance."""
    home = tmp_path_factory.mktemp("undisturbed")
    fill(home)
    carry(home)
    return home


@pytest.fixture(scope="module")
def undisturbed(whole: Path) -> list[dict[str, Any]]:
    return steps_of(whole)


@pytest.mark.parametrize(
    "harm",
    [
        lose,
        pytest.param(damage, marks=pytest.mark.slow),
        pytest.param(fall_back, marks=pytest.mark.slow),
    ],
)
def test_conversations_go_on_as_if_nothing_had_been_lost(
    tmp_path: Path, undisturbed: list[dict[str, Any]], harm: Callable[[Path], None]
) -> None:
    fill(tmp_path)
    carry(tmp_path, batches=1)
    shutil.copytree(tmp_path / "state", tmp_path / "earlier")
    # Seven records a batch and two calls a conversation: one is cut in the middle each time.
    carry(tmp_path, batches=1)
    harm(tmp_path)
    carry(tmp_path)
    check(tmp_path)
    assert steps_of(tmp_path) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("point", ["announced", "appended", "completed"])
def test_killed_and_robbed_of_its_memory_at_any_point(
    tmp_path: Path, undisturbed: list[dict[str, Any]], point: str
) -> None:
    fill(tmp_path)
    assert run(tmp_path, point, "2") == -9
    lose(tmp_path)
    carry(tmp_path)
    check(tmp_path)
    assert steps_of(tmp_path) == undisturbed


def test_without_any_copy_nothing_is_doubled(tmp_path: Path) -> None:
    fill(tmp_path)
    spool = tmp_path / "kept"
    shutil.copytree(tmp_path / "spool", spool)
    carry(tmp_path, batches=2)
    lose(tmp_path)
    shutil.rmtree(tmp_path / "lake" / "_notes")
    shutil.rmtree(tmp_path / "spool")
    shutil.copytree(spool, tmp_path / "spool")
    carry(tmp_path)
    ledger = Lake.open(str(tmp_path / "lake")).query("SELECT exchange_id FROM exchanges")
    assert ledger.num_rows == len(set(ledger["exchange_id"].to_pylist())) == EXCHANGES


def test_a_store_gives_back_what_was_announced(tmp_path: Path) -> None:
    notes = Notes(Location.parse(str(tmp_path / "lake")))
    store = CheckpointStore(tmp_path / "state", notes, name="home")
    (tmp_path / "state").mkdir()
    start = store.load()
    store.announce(start, PendingBatch(1, {"w": 1}))
    done = Checkpoint(start.application, 1, {"w": 1}, packed_json({"open": []}), again=True)
    store.complete(done)
    store.announce(done, PendingBatch(2, {"w": 2}))
    lose(tmp_path)
    (tmp_path / "state").mkdir()
    again = CheckpointStore(tmp_path / "state", notes, name="home")
    assert again.load() == done
    assert again.pending() == PendingBatch(2, {"w": 2})
    assert CheckpointStore(tmp_path / "other", notes, name="other").load().batch == 0


@pytest.mark.parametrize("cut", [0, 3, 20])
def test_a_damaged_copy_is_no_copy(tmp_path: Path, cut: int) -> None:
    notes = Notes(Location.parse(str(tmp_path / "lake")))
    notes.put("home-checkpoint", b"not compressed")
    assert CheckpointStore(tmp_path, notes, name="home").load().batch == 0
    store = CheckpointStore(tmp_path, notes, name="home")
    store.announce(Checkpoint("a", 3, {"w": 1}, NO_MEMORY), PendingBatch(4, {}))
    notes.put("home-checkpoint", (notes.get("home-checkpoint") or b"")[:cut])
    (tmp_path / "checkpoint.json").unlink()
    assert CheckpointStore(tmp_path, notes, name="home").load().batch == 0


def test_a_copy_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    notes = Notes(Location.parse(str(tmp_path / "lake")))
    value = {"version": 1, "application": "a", "batch": 3, "cursor": {"w": 1}, "assembler": {}}
    notes.put("home-checkpoint", zlib.compress(json.dumps(value).encode()))
    assert CheckpointStore(tmp_path, notes, name="home").load() == Checkpoint(
        "a", 3, {"w": 1}, NO_MEMORY
    )


def test_notes_are_for_the_owner_alone_and_hold_no_content(whole: Path) -> None:
    files = list((whole / "lake" / "_notes").iterdir())
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    text = b"".join(piece for path in files for piece in unpacked(path.read_bytes()))
    assert b"maria" not in text
    assert b"order" not in text


def test_an_installation_keeps_its_name(tmp_path: Path) -> None:
    name = installation_name(tmp_path / "installation.id")
    assert name == installation_name(tmp_path / "installation.id")
    assert len(name) == 32


def test_a_lake_that_lost_batches_is_told_of_and_filled_from_what_the_spool_holds(
    tmp_path: Path,
) -> None:
    fill(tmp_path)
    shutil.copytree(tmp_path / "spool", tmp_path / "spare")
    carry(tmp_path, 2)
    shutil.copytree(tmp_path / "lake", tmp_path / "older")
    carry(tmp_path)
    done = CheckpointStore(tmp_path / "state").load()
    shutil.rmtree(tmp_path / "lake")
    shutil.move(tmp_path / "older", tmp_path / "lake")
    assert missing_batches(done, Lake.open(str(tmp_path / "lake"))) == done.batch - 2
    shutil.rmtree(tmp_path / "spool")
    shutil.move(tmp_path / "spare", tmp_path / "spool")
    told: list[tuple[int, int]] = []
    for _ in range(2):
        work = build_pipeline(
            tmp_path, batch_records=7, name="home", behind=lambda *said: told.append(said)
        )
        while work.run_batch() is not None:
            pass
    assert told == [(done.batch, done.batch - 2)]
    rows = Lake.open(str(tmp_path / "lake")).query("SELECT exchange_id FROM exchanges")
    assert len(set(rows["exchange_id"].to_pylist())) == rows.num_rows == EXCHANGES
    assert not missing_batches(
        CheckpointStore(tmp_path / "state").load(), Lake.open(str(tmp_path / "lake"))
    )
