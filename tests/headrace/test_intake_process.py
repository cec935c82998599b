"""A process that reads ahead: the same rows as without it, whenever it dies."""

import json
import random
from pathlib import Path
from typing import Any

import psutil
import pytest

from headrace.checkpoint import NO_MEMORY
from headrace.intake import Source
from headrace.intake_process import IntakeEndedError, IntakeProcess
from headrace.pipeline import Pipeline
from lakehouse.lake import Lake
from lakehouse.schema import BATCH_TABLES
from proxy.spool import Cursor, SpoolReader, SpoolWriter
from tests.headrace.building import failures, pipeline, refuse
from tests.headrace.test_pipeline import EXCHANGES, check, conversation, fill
from tests.proxy.spool.writing import KEY, Script, feedback

NEVER = 1_000_000
WHEN = {"decided_at", "recorded_at"}
"""Moments at which something was done; not the same twice."""


def readers() -> list[psutil.Process]:
    """Return the processes of this one that read ahead."""
    return [child for child in psutil.Process().children() if _reads(child)]


def _reads(child: psutil.Process) -> bool:
    try:
        ended = child.status() == psutil.STATUS_ZOMBIE
        return not ended and "headrace.intake_process" in child.cmdline()
    except psutil.Error:  # somebody else's, which has just ended
        return False


def carried(home: Path, *, apart_from: int, batch_records: int = 7) -> dict[str, list[Any]]:
    """Carry all of a home's spool; return the rows of all tables."""
    fill(home)
    work = pipeline(home, batch_records=batch_records, apart_from=apart_from)
    seen = 0
    while work.run_batch() is not None:
        seen += len(readers())
    work.close()
    assert (seen > 0) == (apart_from < NEVER)
    lake = Lake.open(str(home / "lake"))
    return {
        name: sorted(
            ([(k, v) for k, v in row.items() if k not in WHEN] for row in rows_of(lake, name)),
            key=repr,
        )
        for name in BATCH_TABLES
    }


def rows_of(lake: Lake, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.table(table).to_pyarrow_table().to_pylist()
    return rows


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    return carried(tmp_path_factory.mktemp("alone"), apart_from=NEVER)


def test_the_same_rows_come_with_and_without_it(
    tmp_path: Path, alone: dict[str, list[Any]]
) -> None:
    together = carried(tmp_path, apart_from=1)
    assert {name: len(rows) for name, rows in together.items()} == {
        name: len(rows) for name, rows in alone.items()
    }
    for name, rows in alone.items():
        assert _without_place(together[name]) == _without_place(rows), name


def _without_place(rows: list[Any]) -> list[Any]:
    """Leave out the name of the spool's writer, which is drawn anew for each spool."""
    return [[pair for pair in row if pair[0] != "spool_writer"] for row in rows]


def test_it_is_not_started_for_small_batches_or_an_empty_spool(tmp_path: Path) -> None:
    fill(tmp_path)
    work = pipeline(tmp_path, batch_records=EXCHANGES + 5, apart_from=2)
    while work.run_batch() is not None:
        assert readers() == []
    check(tmp_path)


def test_it_is_started_for_few_records_of_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    monkeypatch.setattr("headrace.pipeline._APART_FROM_BYTES", 1_000)
    work = pipeline(tmp_path, batch_records=10, apart_from=NEVER)
    work.run_batch()
    assert len(readers()) == 1
    work.close()


def test_killed_at_any_moment_it_is_done_without(tmp_path: Path) -> None:
    fill(tmp_path)
    work = pipeline(tmp_path, batch_records=5, apart_from=2)
    kills = 0
    while work.run_batch() is not None:
        for one in readers():
            one.kill()
            one.wait()
            kills += 1
    work.close()
    assert kills
    assert readers() == []
    check(tmp_path)


@pytest.mark.slow
def test_a_commit_that_fails_costs_the_process_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    work = pipeline(tmp_path, batch_records=5, apart_from=2)
    refuse(monkeypatch, Lake, "append", [False, False, True, True])
    failed = 0
    for _ in failures(work):
        failed += 1
        assert readers() == []
    work.close()
    assert failed == 2
    check(tmp_path)


def test_what_came_after_it_looked_is_in_the_next_batch(tmp_path: Path) -> None:
    work = pipeline(tmp_path, batch_records=6, apart_from=2)
    with SpoolWriter(tmp_path / "spool", KEY) as writer:
        for number in range(0, EXCHANGES, 6):
            for one in range(number, number + 6):
                script = Script(writer, one + 1, at=1_790_000_000.0 + 10 * one)
                script.whole(*conversation(one))
            report = work.run_batch()  # and the next one is asked for, when nothing is there
            assert report is not None
            assert report.records == 6
    assert len(readers()) == 1
    feedback_came(tmp_path)
    while work.run_batch() is not None:
        pass
    work.close()
    check(tmp_path)


def feedback_came(home: Path) -> None:
    with SpoolWriter(home / "spool", KEY) as writer:
        feedback(writer, 900, at=1_790_001_000.0)


@pytest.mark.slow
def test_stopped_in_a_backlog_it_leaves_what_the_next_start_needs(tmp_path: Path) -> None:
    fill(tmp_path)
    work = pipeline(tmp_path, batch_records=5, apart_from=2)
    for _ in range(3):
        assert work.run_batch() is not None
    assert len(readers()) == 1
    work.settle()
    work.close()
    assert readers() == []
    again = pipeline(tmp_path)
    while again.run_batch() is not None:
        pass
    check(tmp_path)


@pytest.mark.slow
def test_killed_before_it_told_what_it_remembers_the_spool_tells_it_again(tmp_path: Path) -> None:
    fill(tmp_path)
    work = pipeline(tmp_path, batch_records=7, apart_from=2)
    for _ in range(4):  # the last one is not full: nothing more is asked for
        assert work.run_batch() is not None
    for one in readers():
        one.kill()
        one.wait()
    work.settle()
    state = json.loads((tmp_path / "state" / "checkpoint.json").read_bytes())
    assert state["assembler"]["facts"]
    check(tmp_path)


def test_it_ends_with_its_pipeline(tmp_path: Path) -> None:
    fill(tmp_path)
    work: Pipeline | None = pipeline(tmp_path, batch_records=5, apart_from=2)
    assert work is not None
    work.run_batch()
    assert len(readers()) == 1
    work = None
    assert readers() == []


def test_what_cannot_be_told_to_a_process_is_said_so(tmp_path: Path) -> None:
    spool = SpoolReader(tmp_path / "spool", KEY)
    with pytest.raises(IntakeEndedError):
        IntakeProcess(Source(spool, b"a" * 32, dialects=(Unspeakable(),)), NO_MEMORY)  # type: ignore[arg-type]


class Unspeakable:
    def __init__(self) -> None:
        self.never = lambda: None


def test_an_error_of_reading_ends_it(tmp_path: Path) -> None:
    fill(tmp_path)
    wrong = bytes(random.Random(1).randbytes(32))  # noqa: S311 (no secret)
    process = IntakeProcess(Source(SpoolReader(tmp_path / "spool", wrong), b"a" * 32), NO_MEMORY)
    process.ask(Cursor(), 5)
    with pytest.raises(IntakeEndedError, match="UnknownKeyError"):
        process.receive()
    process.close()
