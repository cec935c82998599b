"""Exams of artefacts are kept in order, and each failed one at held-out tasks counts as a look."""

from dataclasses import replace
from pathlib import Path

from train.registry.exams import (
    EXAMS,
    ExamRecord,
    PairedGain,
    append_exam,
    exam_of,
    look_of,
    read_exams,
)

TRIED = PairedGain(
    tasks=40, base=0.5, candidate=0.7, gain=0.2, low=0.05, high=0.35, low_at_look=0.0
)


def record(content: str, at: int, **changes: object) -> ExamRecord:
    one = ExamRecord(
        at=f"2026-11-{at:02d}T00:00:00+00:00",
        content_hash=content,
        control="0001",
        model="shop@0001",
        substrate="shop@abc",
        look=1,
        passed=False,
        findings=("minimum_gain: 0.05 (limit 0)",),
        tried=TRIED,
    )
    return replace(one, **changes)  # type: ignore[arg-type]


def test_what_was_written_is_read_and_a_torn_line_left_out(tmp_path: Path) -> None:
    first, second = record("a", 1), record("b", 2, tried=None, substrate=None)
    assert read_exams(tmp_path) == []
    append_exam(tmp_path, first)
    with (tmp_path / EXAMS).open("a") as file:
        file.write('{"at": "2026')
    append_exam(tmp_path, second)
    assert read_exams(tmp_path) == [first, second]


def test_the_newest_exam_of_a_content_is_found() -> None:
    old, new = record("a", 1), record("a", 3)
    assert exam_of([old, record("b", 2), new], "a") == new
    assert exam_of([old], "c") is None


def test_each_other_content_that_failed_is_a_look() -> None:
    failed = [record("a", 2), record("b", 3), record("a", 4)]
    assert look_of(failed, "c", "") == 3
    assert look_of(failed, "a", "") == 2, "the same content again is the same look"
    assert look_of(failed, "c", failed[1].at) == 2, "what serves changed in between"
    assert look_of([*failed, record("d", 5, passed=True)], "c", "") == 1
    safety = record("e", 6, tried=None, passed=True)
    assert look_of([*failed, safety], "c", "") == 3, "safety alone is no look, and ends none"
