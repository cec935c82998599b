"""Documents of review queues: what they may ask, and what an answer is as a signal."""

from pathlib import Path
from typing import Any

import pytest

from headrace.app.context import AppContext
from headrace.services.review_queues import SUCCESS_QUEUE, ReviewQueue, queue_of, queues_of
from trajectory.documents.problems import validate
from trajectory.documents.source import read_document
from trajectory.errors import ConfigurationError

HEAD = "apiVersion: headrace/v1\nkind: ReviewQueue\nmetadata: {name: shop}\nspec:\n"


def queue(tmp_path: Path, spec: str) -> ReviewQueue:
    path = tmp_path / "queue.yaml"
    path.write_text(f"{HEAD}  questions:\n    - {spec}\n")
    return validate(ReviewQueue, read_document(path))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("{name: a, ask: x, type: stars}", "unknown 'type'"),
        ("{name: A b, ask: x, type: yes_no}", "name"),
        ("{name: corrected_answer, ask: x, type: text}", "the name of corrections"),
        (
            "{name: a, ask: x, type: choice, choices: [one]}",
            "choices: has too few entries. Name at least 2",
        ),
        ("{name: a, ask: x, type: choice, choices: [one, one]}", "once"),
        ("{name: a, ask: x, type: choice, choices: [one, withdrawn]}", "takes a signal back"),
        ("{name: a, ask: x, type: scale, low: 5, high: 1}", "2 to 20 points"),
        ("{name: a, ask: x, type: scale, low: 0, high: 20}", "2 to 20 points"),
        ("{name: a, ask: x, type: text, required: false}", "one question is required"),
        ("{name: a, ask: x, type: yes_no}\n    - {name: a, ask: y, type: text}", "name of its own"),
    ],
)
def test_a_document_that_asks_nonsense_is_told_where(tmp_path: Path, spec: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        queue(tmp_path, spec)
    assert said in str(told.value)
    assert "queue.yaml:" in str(told.value)


@pytest.mark.parametrize(
    ("spec", "said", "signal"),
    [
        ("{name: a, ask: x, type: yes_no}", "yes", {"value": 1.0}),
        ("{name: a, ask: x, type: yes_no}", "no", {"value": 0.0}),
        ("{name: a, ask: x, type: choice, choices: [one, 2 or more]}", "2 or more", {"label": "2 or more"}),
        ("{name: a, ask: x, type: scale, low: -2, high: 2}", "-1", {"value": -1.0}),
        ("{name: a, ask: x, type: text}", " two words ", {"rationale": "two words"}),
    ],
)  # fmt: skip
def test_an_answer_is_a_signal_of_its_type(
    tmp_path: Path, spec: str, said: str, signal: dict[str, Any]
) -> None:
    asked = queue(tmp_path, spec)
    assert asked.signals({"a": said}) == [{"name": "a", **signal}]
    (question,) = asked.spec.questions
    assert (asked.one_click is None) == (question.options == ())
    if question.options:
        with pytest.raises(ConfigurationError, match="is no answer"):
            asked.signals({"a": "something"})


def test_the_queue_of_success_is_always_there_and_names_are_told_apart(tmp_path: Path) -> None:
    app = AppContext(tmp_path, debug=False)
    assert queues_of(app) == [SUCCESS_QUEUE]
    with pytest.raises(ConfigurationError, match="no queue 'shop'; there are: success"):
        queue_of(app, "shop")
    path = tmp_path / "queue.yaml"
    path.write_text(f"{HEAD}  questions:\n    - {{name: a, ask: x, type: yes_no}}\n")
    (tmp_path / "headrace.yaml").write_text(f"console: {{queues: ['{path}']}}\n")
    assert queue_of(AppContext(tmp_path, debug=False), "shop").required == ("a",)
    (tmp_path / "headrace.yaml").write_text(f"console: {{queues: ['{path}', '{path}']}}\n")
    with pytest.raises(ConfigurationError, match="more than one queue"):
        queues_of(AppContext(tmp_path, debug=False))
