"""The evaluator: one line per attempt, in the form that training reads, and nothing of the prompts."""

import argparse
import json
from itertools import batched
from pathlib import Path

from examples.practice.evaluate import evaluate, evaluate_in_parts, write_report
from examples.practice.tasks import make_tasks


def test_a_report_has_a_line_for_every_attempt(model_folder: Path, tmp_path: Path) -> None:
    sessions = evaluate(model_folder, tasks=4, seed=2, attempts=2, client="openai-responses")
    write_report(tmp_path / "report.jsonl", sessions)
    text = (tmp_path / "report.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    tasks = make_tasks(2, "heldout", 4)
    assert [(line["task_id"], line["attempt"]) for line in lines] == [
        (task.task_id, attempt) for task in tasks for attempt in range(2)
    ]
    assert [line["slice"] for line in lines] == [t.account for t in tasks for _ in range(2)]
    assert all(line["reward"] == float(line["success"]) for line in lines)
    assert not [value.value for task in tasks for value in task.planted if value.value in text]


def test_a_model_does_the_same_each_time_it_is_tried(model_folder: Path) -> None:
    tried = [evaluate(model_folder, tasks=12, seed=5, attempts=2) for _ in range(2)]
    said = [[session.outcome.answer for session in sessions] for sessions in tried]
    assert said[0] == said[1]
    assert any(first != second for first, second in batched(said[0], 2))


def test_parts_are_tried_as_the_whole_is(model_folder: Path) -> None:
    options = argparse.Namespace(
        model=model_folder,
        tasks=7,
        seed=5,
        attempts=2,
        temperature=0.7,
        client="openai-chat",
        split="heldout",
        tools=True,
        processes=2,
    )
    whole = evaluate(model_folder, tasks=7, seed=5, attempts=2)
    parts = evaluate_in_parts(options)
    said = [[(s.task, s.attempt, s.outcome.answer) for s in tried] for tried in (whole, parts)]
    assert said[0] == said[1]
