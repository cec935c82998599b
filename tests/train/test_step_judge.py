"""A judge of steps sees a step and what came of it, each step once."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.api.feedback import read_feedback_items
from tests.train.lakes import Session, lake_of
from tests.train.substrate.test_build import build
from train.chat import ChatMessage
from train.errors import TrainingError
from train.step_judge import StepVerdict, judge_steps
from train.substrate.content import ContentStore
from train.substrate.manifest import load_items
from train.types import ScoredItem
from trajectory.canonical import canonical_json


@pytest.fixture
def items(tmp_path: Path) -> tuple[ContentStore, list[ScoredItem]]:
    lake = lake_of(tmp_path / "lake", Session(3))
    found = load_items(build(lake, tmp_path / "out"))
    return ContentStore.read(lake, [one.item for one in found]), found


def test_each_step_is_judged_by_what_it_saw_said_and_was_answered(
    items: tuple[ContentStore, list[ScoredItem]],
) -> None:
    content, (entry,) = items
    seen: list[tuple[list[str], list[str]]] = []

    def judge(prompt: Sequence[ChatMessage], completion: Sequence[ChatMessage]) -> float | None:
        seen.append(([m["role"] for m in prompt], [m["role"] for m in completion]))
        return None if len(seen) == 2 else 0.5

    left_out: Counter[str] = Counter()
    # The same item twice: a step that several items hold is judged once.
    found = list(judge_steps(content, [entry, entry], judge, "my:judge", left_out))
    assert seen == [
        (["system", "user"], ["assistant", "tool"]),
        (["system", "user", "assistant", "tool"], ["assistant"]),
    ]
    assert found == [StepVerdict("acme", entry.item.step_ids[0], 0.5)]
    assert left_out == {"judge_cannot_tell": 1}


def test_a_verdict_is_an_item_of_the_feedback_api() -> None:
    verdict = StepVerdict("acme", "b2:step", 0.25)
    said = verdict.feedback(name="step_quality", judge="my:judge")
    (item,) = read_feedback_items(canonical_json(said), tenant_id="acme")
    assert (item.target_kind, item.target_id, item.body["source_kind"]) == (
        "step",
        "b2:step",
        "judge",
    )
    again = verdict.feedback(name="step_quality", judge="my:judge")
    assert again["idempotency_key"] == said["idempotency_key"]
    other = replace(verdict, value=0.5).feedback(name="step_quality", judge="my:judge")
    assert other["idempotency_key"] != said["idempotency_key"]


def test_content_that_is_gone_is_counted(items: tuple[ContentStore, list[ScoredItem]]) -> None:
    _, (entry,) = items
    left_out: Counter[str] = Counter()
    nothing = ContentStore({}, {})
    assert list(judge_steps(nothing, [entry], lambda *_: 1.0, "j", left_out)) == []
    assert left_out == {"content_gone": 1}


def test_a_judge_that_fails_or_gives_no_number_ends_it(
    items: tuple[ContentStore, list[ScoredItem]],
) -> None:
    content, found = items
    with pytest.raises(TrainingError, match="no finite number"):
        list(judge_steps(content, found, lambda *_: float("nan"), "j", Counter()))
