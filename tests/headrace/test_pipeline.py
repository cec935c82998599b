"""Exactly once from spool to lake: whatever dies, every record ends in the lake one time."""

import gc
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from governance.audit import AuditLog
from headrace.govern.checkpoint import CheckpointStore
from headrace.govern.packed_json import unpacked
from headrace.pipeline import Pipeline
from lakehouse.lake import Lake
from proxy.spool import SpoolWriter
from tests.headrace.pipelines import failures, pipeline, refuse
from tests.proxy.spool.scripts import CLIENT, KEY, ExchangeScript, feedback
from trajectory.errors import RetryableError

EXCHANGES = 24
PERSON = "maria.lopez@example.org"


def conversation(number: int) -> tuple[bytes, bytes]:
    """Return request and response of a chat call; each second one continues the one before."""
    session, turn = divmod(number, 2)
    messages = [{"role": "user", "content": f"order {session} for {PERSON}"}]
    if turn:
        messages += [
            {"role": "assistant", "content": f"answer {number - 1}"},
            {"role": "user", "content": "and once more"},
        ]
    answer = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "model": "m-1",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": f"answer {number}"},
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
    }
    return json.dumps({"model": "m", "messages": messages}).encode(), json.dumps(answer).encode()


def fill(home: Path) -> None:
    with SpoolWriter(home / "spool", KEY) as writer:
        for number in range(EXCHANGES):
            script = ExchangeScript(writer, number + 1, at=1_790_000_000.0 + 10 * number)
            script.whole(*conversation(number))
        feedback(writer, 900, at=1_790_001_000.0)


def run(home: Path, *arguments: str) -> int:
    worker = [sys.executable, "-m", "tests.headrace.pipeline_worker", str(home), *arguments]
    return subprocess.run(worker, check=False, timeout=100).returncode


def check(home: Path) -> None:
    lake = Lake.open(str(home / "lake"))
    ledger = lake.query("select exchange_id, disposition from exchanges").to_pylist()
    assert len(ledger) == EXCHANGES
    assert {row["disposition"] for row in ledger} == {"stored"}
    assert len({row["exchange_id"] for row in ledger}) == EXCHANGES
    steps = lake.query("select step_id, exchange_id, trajectory_id, step_index from steps")
    assert steps.num_rows == EXCHANGES
    assert len(set(steps["exchange_id"].to_pylist())) == EXCHANGES
    assert len(set(steps["trajectory_id"].to_pylist())) == EXCHANGES // 2
    messages = lake.query("select message_id from messages")["message_id"].to_pylist()
    assert len(messages) == len(set(messages))
    assert lake.query("select count(*) as n from signals").to_pylist() == [{"n": 1}]
    text = json.dumps(lake.query("select parts from messages")["parts"].to_pylist())
    assert PERSON not in text


def test_a_folder_that_takes_no_file_is_tried_again(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "spool", KEY) as writer:
        ExchangeScript(writer, 1, at=1_790_000_000.0).whole(b"no JSON", b"no JSON either")
    (tmp_path / "quarantine").touch()
    work = pipeline(tmp_path)
    with pytest.raises(RetryableError, match="nothing was lost"):
        work.run_batch()
    (tmp_path / "quarantine").unlink()
    report = work.run_batch()
    assert report is not None
    assert report.dispositions == {"quarantined": 1}
    with pytest.raises(RetryableError, match="nothing was lost"):
        _refuse_listing(work, tmp_path)


def _refuse_listing(work: Pipeline, home: Path) -> None:
    """Let go of what is old, where a file of the quarantine cannot be deleted."""
    (sealed,) = (home / "quarantine").iterdir()
    sealed.unlink()
    sealed.mkdir()
    work.tidy(-1.0)


def test_a_spool_ends_in_the_lake_once(tmp_path: Path) -> None:
    fill(tmp_path)
    assert run(tmp_path) == 0
    check(tmp_path)
    assert run(tmp_path) == 0
    check(tmp_path)


def test_governed_segments_leave_the_spool(tmp_path: Path) -> None:
    fill(tmp_path)
    assert run(tmp_path) == 0
    assert [path for path in (tmp_path / "spool").rglob("*.spool") if path.stat().st_size] == []


def remembered(home: Path) -> dict[str, Any]:
    """Return what assembly remembers by the home's checkpoint."""
    with closing(sqlite3.connect(home / "state" / "checkpoint.sqlite")) as file:
        packed = file.execute("SELECT remembered FROM conversations").fetchone()[0]
    found: dict[str, Any] = json.loads(b"".join(unpacked(packed)))
    return found


def test_the_open_conversations_are_not_written_with_every_batch(tmp_path: Path) -> None:
    fill(tmp_path)
    work = pipeline(tmp_path, batch_records=7)
    work.run_batch()
    written = remembered(tmp_path)
    spooled = sum(path.stat().st_size for path in (tmp_path / "spool").rglob("*.spool"))
    while work.run_batch() is not None:
        pass
    assert written == {}
    assert remembered(tmp_path)["facts"]
    assert spooled
    assert not any((tmp_path / "spool").rglob("*.spool"))
    check(tmp_path)


def test_a_pipeline_that_stops_leaves_nothing_in_the_spool_that_is_in_the_lake(
    tmp_path: Path,
) -> None:
    fill(tmp_path)
    work = pipeline(tmp_path, batch_records=7)
    assert work.run_batch() is not None
    before = CheckpointStore(tmp_path / "state").load()
    work.settle()
    after = CheckpointStore(tmp_path / "state").load()
    assert before.trail
    assert not after.trail
    assert (after.batch, after.cursor) == (before.batch, before.cursor)
    again = pipeline(tmp_path)
    while again.run_batch() is not None:
        pass
    check(tmp_path)


def test_a_batch_that_cannot_be_written_is_carried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    work = pipeline(tmp_path, batch_records=7)
    refuse(monkeypatch, Lake, "append", [False, True, False, True])
    assert len(list(failures(work))) == 2
    check(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["announced", "appended", "completed"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_death_between_any_two_steps_loses_and_doubles_nothing(
    tmp_path: Path, point: str, count: int
) -> None:
    fill(tmp_path)
    assert run(tmp_path, point, str(count)) == -9
    assert run(tmp_path, point, "1") == -9 or (tmp_path / "state" / "checkpoint.sqlite").exists()
    assert run(tmp_path) == 0
    check(tmp_path)


def test_what_was_carried_does_not_wait_for_the_collector(tmp_path: Path) -> None:
    """It is held off while batches are carried: what holds itself would pile up."""
    fill(tmp_path)
    work = pipeline(tmp_path, batch_records=5)
    work.run_batch()  # what is made once may be anything
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        while work.run_batch() is not None:
            pass
        gc.collect()
        left = {type(one).__qualname__ for one in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert not left & {"Message", "CleanMessage", "Call", "Exchange", "Placed", "GovernedBatch"}


def test_a_tenant_whose_name_no_folder_can_have_does_not_stop_the_others(tmp_path: Path) -> None:
    """Its records come from a client key that was made before such names were refused."""
    fill(tmp_path)
    with SpoolWriter(tmp_path / "spool", KEY) as writer:
        for number, tenant in enumerate(("\u6f22" * 30, "", "__HIVE_DEFAULT_PARTITION__"), 950):
            script = ExchangeScript(writer, number, client=replace(CLIENT, tenant_id=tenant))
            script.whole(*conversation(0))
    work = pipeline(tmp_path)
    reports = []
    while (report := work.run_batch()) is not None:
        reports.append(report)
    check(tmp_path)
    assert sum(report.without_folder for report in reports) == 3
    said = [
        one
        for one in AuditLog(tmp_path / "audit.jsonl", b"l" * 32).entries()
        if one.action == "records.without_folder"
    ]
    assert [json.loads(one.detail) for one in said] == [{"by_key": {CLIENT.key_id: 3}}]
