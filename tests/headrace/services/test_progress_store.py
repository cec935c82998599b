"""How far long work is: told while it is done, kept when it ends, and what a kill leaves is interrupted."""

import os
import signal
import time
from multiprocessing import get_context
from pathlib import Path

import pytest

from headrace.app.context import AppContext
from headrace.cli import run
from headrace.console.users import system_user
from headrace.services import progress_store
from headrace.services.erasure import ErasureRequest, erase_person
from headrace.services.progress_store import ProgressStore, progress_of
from tests.train.lakes import Session, lake_of
from trajectory.errors import WorkError


def test_work_is_told_of_while_it_is_done_and_when_it_ended(tmp_path: Path) -> None:
    store = ProgressStore(tmp_path / "progress")
    assert store.list() == []
    with store.recorded("substrate", "shop", who="ida") as advance:
        advance("select", 0, None)
        advance("write", 3, 4)
        (seen,) = ProgressStore(tmp_path / "progress").list()
        assert (seen.kind, seen.subject, seen.started_by, seen.status) == (
            "substrate", "shop", "ida", "running"
        )  # fmt: skip
        assert (seen.stage, seen.done, seen.total) == ("write", 3, 4)
    (ended,) = store.list()
    assert (ended.status, ended.done, ended.seen_at >= seen.seen_at) == ("done", 3, True)


def test_work_that_failed_says_by_which_error_and_nothing_of_its_text(tmp_path: Path) -> None:
    store = ProgressStore(tmp_path)
    with pytest.raises(WorkError), store.recorded("training", "shop", who="ida"):
        raise WorkError("what somebody said")
    (failed,) = store.list()
    assert (failed.status, failed.problem) == ("failed", "WorkError")
    assert "somebody" not in "".join(path.read_text() for path in tmp_path.iterdir())


def _endless(folder: Path) -> None:
    with ProgressStore(folder).recorded(
        "erasure", "subject_1", who="ida", tenant="acme"
    ) as advance:
        advance("rows", 1, 2)
        time.sleep(600)


def test_what_a_killed_process_left_is_interrupted(tmp_path: Path) -> None:
    store = ProgressStore(tmp_path)
    process = get_context("spawn").Process(target=_endless, args=(tmp_path,))
    process.start()
    while not [one for one in store.list() if one.stage == "rows"]:
        time.sleep(0.05)
    assert [one.status for one in store.list()] == ["running"]
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    (left,) = store.list()
    assert (left.status, left.done, left.total) == ("interrupted", 1, 2)


def test_slow_work_gives_signs_of_life_and_a_stopped_process_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ProgressStore(tmp_path)
    monkeypatch.setattr(progress_store, "HEARTBEAT_SECONDS", 0.02)
    with store.recorded("training", "shop", who="ida") as advance:
        advance("fit", 1, 2)
        (told,) = store.list()
        until = time.monotonic() + 60
        while (now := store.list()[0]).alive_at <= told.alive_at:
            assert time.monotonic() < until, "the work says nothing, and its process lives"
            time.sleep(0.02)
        assert (now.seen_at, now.status, now.is_silent) == (told.seen_at, "running", False)
    monkeypatch.setattr(progress_store, "HEARTBEAT_SECONDS", 3600.0)
    with store.recorded("training", "stopped", who="ida"):
        (now, _) = store.list()
        assert not now.is_silent
        monkeypatch.setattr(time, "time", lambda: now.alive_at + 61)
        assert [one.is_silent for one in store.list()] == [True, False]


def test_a_disk_that_refuses_costs_the_record_and_not_the_work(tmp_path: Path) -> None:
    (tmp_path / "progress").write_text("no folder")
    with ProgressStore(tmp_path / "progress").recorded("substrate", "shop", who="ida") as advance:
        advance("write", 1, 1)
    assert ProgressStore(tmp_path / "progress").list() == []


def test_old_files_go(tmp_path: Path) -> None:
    store = ProgressStore(tmp_path)
    for number in range(103):
        with store.recorded("substrate", str(number), who="ida"):
            pass
    assert len(store.list()) == 101
    assert [store.list()[0].subject, store.list()[-1].subject] == ["102", "2"]
    assert len([*tmp_path.iterdir()]) == 202


SUBSTRATE = """\
apiVersion: headrace/v1
kind: Substrate
metadata: {name: shop}
spec:
  purposes: [train_sft]
  reward: {signals: {success: 1.0}}
"""


def test_erasures_and_substrates_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SUBSTRATE)
    app = AppContext(tmp_path / "home", debug=False)
    lake_of(app.home.create().lake, Session(1))
    home = ["--home", str(app.home.root)]
    assert run([*home, "substrate", "build", str(tmp_path / "shop.yaml")]) == 0
    request = ErasureRequest("acme", ["jo"], "oda")
    erase_person(app, request, lambda _done, _total: None)
    app.subject_keys.close()
    erased, built = progress_of(app).list()
    assert (built.kind, built.subject, built.started_by, built.status) == (
        "substrate", "shop", system_user().name, "done"
    )  # fmt: skip
    assert (built.stage, built.done) == ("done", built.total)
    assert (erased.kind, erased.started_by, erased.tenant, erased.status, erased.stage) == (
        "erasure", "oda", "acme", "done", "certificate"
    )  # fmt: skip
    assert erased.subject.startswith("subject_")
