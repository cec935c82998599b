"""The checkpoint survives a crash at any point and refuses what is damaged."""

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.govern.checkpoint import Checkpoint, CheckpointStore, PendingBatch
from headrace.govern.packing import packed_json
from lakehouse.storage.location import Location
from lakehouse.storage.notes import Notes
from trajectory.errors import IntegrityError


def test_a_fresh_store_starts_at_batch_zero_with_a_name_of_its_own(tmp_path: Path) -> None:
    first, second = CheckpointStore(tmp_path / "a").load(), CheckpointStore(tmp_path / "b").load()
    assert first.batch == 0
    assert first.application != second.application


def test_announcing_fixes_the_application_name_before_anything_is_committed(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    checkpoint = store.load()
    store.announce(checkpoint, PendingBatch(1, {"w": 2}))
    again = CheckpointStore(tmp_path)
    assert again.load().application == checkpoint.application
    assert again.pending() == PendingBatch(1, {"w": 2})


def test_completing_moves_the_checkpoint_and_clears_what_was_announced(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    start = store.load()
    store.announce(start, PendingBatch(1, {"w": 1}))
    done = Checkpoint(start.application, 1, {"w": 1}, packed_json({"open": []}))
    store.complete(done)
    assert CheckpointStore(tmp_path).load() == done
    assert store.pending() is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 99}'])
def test_a_damaged_file_is_refused_with_a_remedy(tmp_path: Path, text: str) -> None:
    (tmp_path / "checkpoint.json").write_text(text, encoding="utf-8")
    with pytest.raises(IntegrityError, match="Move it away"):
        CheckpointStore(tmp_path).load()


def test_files_are_for_the_owner_alone(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.announce(store.load(), PendingBatch(1, {}))
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {0o600}


def test_batches_after_the_assemblers_state_are_remembered_by_their_cursors(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    start = store.load()
    store.announce(start, PendingBatch(1, {"w": 1}))
    first = replace(start, batch=1, cursor={"w": 1}, trail=({}, {"w": 1}))
    store.complete(first)
    second = replace(start, batch=2, cursor={"w": 2}, trail=({}, {"w": 1}, {"w": 2}))
    store.complete(second)
    assert CheckpointStore(tmp_path).load() == second
    assert second.hold == {}
    whole = replace(second, assembler=packed_json({"open": []}), trail=())
    store.complete(whole)
    assert CheckpointStore(tmp_path).load() == whole
    assert whole.hold == {"w": 2}


def test_a_copy_gives_back_the_batches_after_the_assemblers_state(tmp_path: Path) -> None:
    notes = Notes(Location.parse(str(tmp_path / "lake")))
    done = Checkpoint(
        "a", 5, {"w": 5}, packed_json({"open": []}), trail=({"w": 3}, {"w": 4}, {"w": 5})
    )
    store = CheckpointStore(tmp_path, notes, name="home")
    store.announce(done, PendingBatch(6, {"w": 6}))
    for path in tmp_path.glob("*.json"):
        path.unlink()
    again = CheckpointStore(tmp_path, notes, name="home")
    assert again.load() == done
    again.announce(done, PendingBatch(6, {"w": 6}))
    assert CheckpointStore(tmp_path).load() == done


def test_damaged_progress_is_refused_with_a_remedy_that_doubles_nothing(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    start = store.load()
    store.announce(start, PendingBatch(1, {"w": 1}))
    (tmp_path / "progress.json").write_text("{", encoding="utf-8")
    with pytest.raises(IntegrityError, match=r"checkpoint\.json is damaged"):
        CheckpointStore(tmp_path).load()
    (tmp_path / "checkpoint.json").unlink()
    (tmp_path / "progress.json").write_text(
        '{"version": 1, "application": "x", "batch": 1, "trail": [{}, {}]}'
    )
    assert CheckpointStore(tmp_path).load().batch == 0
