"""The user's own evaluator is called as promised, and its report is held to its form."""

import json
import os
import sys
from pathlib import Path

import pytest

from train.errors import EvaluationError
from train.evaluation.evaluate import TaskResult, compare, evaluate, read_report
from train.recipes.settings import EvaluationSettings

WRITER = """
import argparse, json
parser = argparse.ArgumentParser()
for name in ("--model", "--report", "--tasks", "--seed"):
    parser.add_argument(name)
given = parser.parse_args()
with open(given.report, "w") as file:
    for number in range(int(given.tasks)):
        line = {"task_id": f"{given.seed}-{number}", "attempt": 0, "success": number % 2 == 0}
        file.write(json.dumps({**line, "reward": 0.5, "slice": given.model[-1]}) + "\\n")
"""


def settings(script: str, tmp_path: Path, **changes: object) -> EvaluationSettings:
    path = tmp_path / "evaluator.py"
    path.write_text(script)
    value = {"command": [sys.executable, str(path)], "tasks": 4, "seed": 7}
    return EvaluationSettings.model_validate({**value, **changes})


def test_command_gets_model_report_tasks_and_seed(tmp_path: Path) -> None:
    results = evaluate(settings(WRITER, tmp_path), Path("/m/x"), report=tmp_path / "r" / "a.jsonl")
    assert [result.task_id for result in results] == ["7-0", "7-1", "7-2", "7-3"]
    assert results[0] == TaskResult("7-0", 0, True, 0.5, "x")


def test_an_evaluator_gets_our_environment_without_the_master_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_MASTER_KEY", "00" * 32)
    monkeypatch.setenv("OF_THE_USER", "1")
    looks = "import os\nassert set(os.environ) & {'HEADRACE_MASTER_KEY', 'OF_THE_USER'} == {'OF_THE_USER'}"
    assert evaluate(settings(looks + WRITER, tmp_path), Path("m"), report=tmp_path / "r.jsonl")


def test_failure_tells_where_the_last_words_stand(tmp_path: Path) -> None:
    """An evaluator may quote a conversation: not in our log, nor in the table of runs."""
    failing = settings("import sys; sys.exit('Ida Novak said no')", tmp_path)
    with pytest.raises(EvaluationError, match="code 1; its last words stand in") as raised:
        evaluate(failing, Path("m"), report=tmp_path / "r.jsonl")
    assert "Novak" not in str(raised.value)
    words = tmp_path / "evaluation.command.words"
    assert str(words) in str(raised.value)
    assert words.read_text().strip() == "Ida Novak said no"
    assert words.stat().st_mode & 0o777 == 0o600
    evaluate(settings(WRITER, tmp_path), Path("/m/x"), report=tmp_path / "r.jsonl")
    assert not words.exists()


def test_slow_evaluator_is_ended(tmp_path: Path) -> None:
    slow = settings("import time; time.sleep(60)", tmp_path, timeout_seconds=0.5)
    with pytest.raises(EvaluationError, match=r"longer than 0\.5 s"):
        evaluate(slow, Path("m"), report=tmp_path / "r.jsonl")


def test_unknown_command_is_named(tmp_path: Path) -> None:
    missing = EvaluationSettings(command=("no-such-program",), tasks=2)
    with pytest.raises(EvaluationError, match="'no-such-program' cannot be started"):
        evaluate(missing, Path("m"), report=tmp_path / "r.jsonl")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "the report is empty"),
        ("nonsense", ":1: not a result"),
        ('{"task_id": "a"}', ":1: not a result"),
        ('{"task_id": "a", "success": true, "unknown": true}', ":1: not a result"),
        ('{"task_id": "a", "success": "false", "reward": 0.0}', ":1: not a result"),
        ('{"task_id": "a", "success": 0.5, "reward": 0.5}', ":1: not a result"),
        ('{"task_id": "a", "success": false, "unknown": "no"}', ":1: not a result"),
        ('{"task_id": "a", "success": true, "reward": NaN}', ":1: not a result"),
        ('{"task_id": "a", "success": true, "reward": 1e308}', ":1: not a result"),
        (f'{{"task_id": "a", "success": true, "reward": {10**400}}}', ":1: not a result"),
        ('{"task_id": "a", "success": true, "attempt": 1e999}', ":1: not a result"),
        ('{"task_id": null, "success": true}', ":1: not a result"),
        ('{"task_id": ["a"], "success": true}', ":1: not a result"),
        ("[" * 100_000, ":1: not a result"),
        ("\udcff", ":1: not a result"),
        (
            '{"task_id": "a", "success": true}\n{"task_id": "a", "success": true}',
            "stands there twice",
        ),
    ],
)
def test_unreadable_report_is_refused(tmp_path: Path, lines: str, message: str) -> None:
    path = tmp_path / "report.jsonl"
    path.write_text(lines, errors="surrogateescape")
    with pytest.raises(EvaluationError, match=message):
        read_report(path)


def test_a_pipe_in_place_of_a_report_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report.jsonl")
    with pytest.raises(EvaluationError, match="wrote no report"):
        read_report(tmp_path / "report.jsonl")


def test_a_task_may_be_named_in_any_characters(tmp_path: Path) -> None:
    path = tmp_path / "report.jsonl"
    path.write_text('{"task_id": "a\u2028b", "success": true}\r\n{"task_id": 2, "success": 0}\n')
    assert [result.task_id for result in read_report(path)] == ["a\u2028b", "2"]


def results(successes: list[bool], *, attempts: int = 1) -> list[TaskResult]:
    return [
        TaskResult(str(number // attempts), number % attempts, success, float(success), "all")
        for number, success in enumerate(successes)
    ]


def test_clear_gain_is_seen_and_no_gain_is_not(tmp_path: Path) -> None:
    used = settings(WRITER, tmp_path)
    weak, strong = (
        results([n % 4 == 0 for n in range(80)]),
        results([n % 4 != 1 for n in range(80)]),
    )
    better = compare(weak, strong, used)
    assert better.gain.method == "paired-t"
    assert better.gain.low > 0.3
    same = compare(weak, weak, used)
    assert same.gain.low < 0 < same.gain.high
    assert json.dumps(better.slices["all"].gain.estimate) == "0.5"


def test_attempts_at_one_task_are_not_independent(tmp_path: Path) -> None:
    used = settings(WRITER, tmp_path)
    once = compare(results([False] * 10), results([n % 2 == 0 for n in range(10)]), used)
    copied = compare(
        results([False] * 100, attempts=10),
        results([(n // 10) % 2 == 0 for n in range(100)], attempts=10),
        used,
    )
    # Ten copies of each attempt tell no more than one.
    assert copied.tasks == once.tasks == 10
    assert copied.gain.method == "paired-t"
    assert copied.gain.high - copied.gain.low > 0.4
    assert (copied.base, copied.candidate) == (once.base, once.candidate)


def test_what_is_unknown_is_counted_for_both(tmp_path: Path) -> None:
    path = tmp_path / "report.jsonl"
    path.write_text(
        '{"task_id": "a", "success": false, "unknown": true}\n{"task_id": "b", "success": true}'
    )
    found = compare(results([True, True]), results([True, True]), settings(WRITER, tmp_path))
    assert (found.base_unknown, found.candidate_unknown) == (0, 0)
    read = read_report(path)
    assert compare(read, read, settings(WRITER, tmp_path)).candidate_unknown == 1


def golden(*lines: str) -> list[TaskResult]:
    told = {"+": (True, True), "-": (True, False), "0": (False, False), "?": (True, None)}
    return [
        TaskResult(str(at), 0, told[one][0], 1.0, gold=told[one][1])
        for at, one in enumerate("".join(lines))
    ]


def test_what_gold_denies_is_compared_where_both_have_gold(tmp_path: Path) -> None:
    used = settings(WRITER, tmp_path)
    found = compare(golden("+" * 20, "0" * 20, "?"), golden("+" * 20, "-" * 20, "?"), used)
    assert found.proxy_gap is not None
    assert (found.proxy_gap.estimate, found.gain.low > 0) == (0.5, True)
    assert found.proxy_gap.low > 0.3
    honest = compare(golden("+" * 20, "0" * 20), golden("+" * 40), used).proxy_gap
    assert honest is not None
    assert honest.estimate == 0
    assert compare(golden("?" * 9), golden("?" * 9), used).proxy_gap is None


def test_a_report_may_say_what_gold_is(tmp_path: Path) -> None:
    path = tmp_path / "report.jsonl"
    path.write_text(
        '{"task_id": "a", "success": true, "gold": false}\n{"task_id": "b", "success": true}'
    )
    assert [one.gold for one in read_report(path)] == [False, None]


def test_different_tasks_cannot_be_compared(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="not tried at the same tasks"):
        compare(results([True] * 3), results([True] * 4), settings(WRITER, tmp_path))
