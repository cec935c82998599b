"""A system prompt that names the time changes nothing of what is compared, learned once, and counted."""

from pathlib import Path
from typing import Any

import pytest

from lakehouse.lake import Lake
from tests.train.lakes import Session, lake_of
from tests.train.substrate.test_build import build
from tests.train.test_recipes import REWARD, spec
from train.evaluation.held_out import held_out_tasks
from train.recipes import recipe_module
from train.recipes.base import Rows
from train.recipes.settings import EvaluationSettings
from train.runs.rows import IGNORED, Masker
from train.substrate.content import ContentStore
from train.substrate.manifest import load_items
from train.types import ScoredItem

PURPOSES = ["train_sft", "train_preference", "train_rl"]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Four tasks, tried twice each: one attempt was right."""
    return lake_of(
        tmp_path / "lake",
        *(
            Session(
                n,
                clock=True,
                lamps=n // 2,
                reward=float(n % 2),
                group=f"g{n // 2}",
                question=f"What do {n // 2} lamps cost?",
                answer=f"They cost {n}.",
            )
            for n in range(8)
        ),
    )


def made(name: str, lake: Lake, out: Path, tokenizer: Any, **options: Any) -> tuple[Any, Rows]:
    items = items_of(lake, out)
    used = spec(name, options=options)
    selection = recipe_module(name).select(items, used)
    content = ContentStore.read(lake, [entry.item for entry in items])
    return selection, recipe_module(name).rows(selection, content, Masker(tokenizer), used)


def items_of(lake: Lake, out: Path) -> list[ScoredItem]:
    return load_items(build(lake, out, purposes=PURPOSES, split={"holdout": 0.0}))


def test_an_attempt_is_one_item_and_each_step_is_learned_under_its_own_prompt(
    lake: Lake, tokenizer: Any, tmp_path: Path
) -> None:
    items = items_of(lake, tmp_path / "out")
    assert [entry.item.step_ids for entry in items if entry.item.trajectory_id == "t00003"] == [
        ("t00003-0", "t00003-1")
    ]
    assert len(items) == 8
    _, rows = made("sft", lake, tmp_path / "out", tokenizer)
    assert dict(rows.dropped) == {}
    learned = []
    for ids, labels in zip(rows.columns["input_ids"], rows.columns["labels"], strict=True):
        text = tokenizer.decode(ids)
        said = tokenizer.decode([label for label in labels if label != IGNORED])
        learned.append((text[text.index("It is") :][:15], said))
    assert ("It is 12:01:10.", '<tool_call>price {"lamps": 0}</tool_call><|im_end|>') in learned
    assert ("It is 12:01:11.", "They cost 1.<|im_end|>") in learned
    assert len({time for time, _ in learned}) == len(learned) == 8


def test_a_reward_for_the_last_answer_teaches_the_calls_before_it(
    lake: Lake, tmp_path: Path
) -> None:
    found = build(lake, tmp_path / "out", purposes=PURPOSES)
    assert "no_reward" not in found.left_out_items
    assert sum(len(entry.item.step_ids) for entry in load_items(found)) == 16


def test_like_is_compared_with_like(lake: Lake, tokenizer: Any, tmp_path: Path) -> None:
    selection, rows = made("reward_model", lake, tmp_path / "out", tokenizer)
    assert [len(unit) for unit in selection.units] == [2, 2, 2, 2]
    for name, right in (("chosen_ids", 1), ("rejected_ids", 0)):
        for ids in rows.columns[name]:
            last = tokenizer.decode(ids).rpartition("assistant\n")[2]
            number = int(last.removeprefix("They cost ").removesuffix(".<|im_end|>"))
            assert number % 2 == right

    selection, rows = made("dpo", lake, tmp_path / "out", tokenizer)
    assert len(rows) == 4
    for prompt, chosen, rejected in zip(
        *(rows.columns[name] for name in ("prompt_ids", "chosen_ids", "rejected_ids")), strict=True
    ):
        # Both made the same call; they differ in their answers alone, and the prompt is the better one's.
        assert tokenizer.decode(chosen).startswith("They cost")
        assert tokenizer.decode(rejected).startswith("They cost")
        minute = tokenizer.decode(prompt).split("12:")[1][:2]
        assert f"They cost {int(minute)}." in tokenizer.decode(chosen)


def test_attempts_at_one_task_are_one_task(lake: Lake, tokenizer: Any, tmp_path: Path) -> None:
    _, rows = made(
        "grpo_live", lake, tmp_path / "out", tokenizer, reward=REWARD, completion_tokens=64
    )
    assert len(rows) == 4
    assert all(len(prompt) == 2 for prompt in rows.columns["prompt"])
    held = load_items(build(lake, tmp_path / "held", purposes=PURPOSES, split={"holdout": 0.99}))
    settings = EvaluationSettings.model_validate({"tasks": 9, "replay": {"expected": "answer"}})
    tasks = held_out_tasks(lake, held, settings)
    assert len(tasks.tasks) == len(
        {entry.item.group_id for entry in held if entry.split != "train"}
    )
    assert all(len(task.paths) == 2 for task in tasks.tasks)


def test_what_is_held_out_is_not_learned_at_another_time_of_day(tmp_path: Path) -> None:
    asked = [
        Session(n, clock=True, question="What do 7 lamps cost?", group=f"g{n}") for n in range(40)
    ]
    found = build(
        lake_of(tmp_path / "lake", *asked),
        tmp_path / "out",
        split={"by": ["group"], "holdout": 0.5},
    )
    assert found.counts["holdout"] > 0
    assert (found.counts["train"], found.left_out_items["contaminated"]) == (
        0,
        40 - found.counts["holdout"],
    )
