"""The checkpoint survives a crash at any point and refuses what is damaged."""

from pathlib import Path

import pytest

from headrace.checkpoint import Checkpoint, CheckpointStore, PendingBatch
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
    done = Checkpoint(start.application, 1, {"w": 1}, {"open": []})
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
