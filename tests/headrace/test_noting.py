"""Checkpoints written beside the work: what depends on one waits for it, what fails counts as not done."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.checkpoint import Checkpoint, CheckpointStore, PendingBatch
from headrace.noting import Noting
from tests.headrace.building import failures, pipeline, refuse
from tests.headrace.test_pipeline import check, fill
from trajectory.canonical import JsonObject
from trajectory.errors import RetryableError

FIRST: JsonObject = {"w": 1}
SECOND: JsonObject = {"w": 2}


def begun(state: Path) -> tuple[Noting, Checkpoint]:
    """Return a noting whose first batch is announced, and the checkpoint after that batch."""
    noting = Noting(CheckpointStore(state), beside=True)
    with noting.announced(PendingBatch(1, FIRST)):
        pass
    return noting, replace(noting.latest, batch=1, cursor=FIRST, trail=({}, FIRST))


def test_an_announcement_follows_what_was_done_before(tmp_path: Path) -> None:
    noting, done = begun(tmp_path)
    noting.complete(done, beside=True)
    with noting.announced(PendingBatch(2, SECOND)):
        pass
    store = CheckpointStore(tmp_path)
    assert store.load() == noting.latest == done
    assert store.pending() == PendingBatch(2, SECOND)


def test_a_batch_that_could_not_be_noted_counts_as_not_done(tmp_path: Path) -> None:
    noting, done = begun(tmp_path)
    start = noting.latest
    (tmp_path / "progress.json").mkdir()
    noting.complete(done, beside=True)
    with (
        pytest.raises(RetryableError, match=r"progress\.json"),
        noting.announced(PendingBatch(2, SECOND)),
    ):
        pass
    assert noting.latest == start
    (tmp_path / "progress.json").rmdir()
    store = CheckpointStore(tmp_path)
    assert store.load() == start
    assert store.pending() == PendingBatch(1, FIRST)


def test_in_a_backlog_a_full_disk_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    work = pipeline(tmp_path, batch_records=5, apart_from=2)
    refuse(monkeypatch, CheckpointStore, "complete", [False, True, True])
    assert len(list(failures(work))) == 2
    work.close()
    check(tmp_path)
    state = json.loads((tmp_path / "state" / "checkpoint.json").read_bytes())
    assert state["batch"] == 5
