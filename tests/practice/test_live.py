"""Live training on the practice floor: real tool calls, answered from the record or missed."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from examples.practice.prompts import SYSTEM_PROMPT, TOOL, TOOL_NAME
from examples.practice.shop import PRICE_LISTS, PRICES
from examples.practice.tasks import make_tasks
from examples.practice.tools import quote_text
from train.evaluation.environment import RecordedCall, canonical
from train.recipes.base import RowBuilder, Rows
from train.recipes.settings import load_recipe
from train.runs.curves import read_metrics
from train.runs.fit import fit

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

RECIPE = Path("examples/practice/recipe-live.yaml")


def everything_recorded() -> list[RecordedCall]:
    """What the tool answers to any call that makes sense."""
    return [
        RecordedCall(
            TOOL_NAME,
            canonical({"item": item, "price_list": prices, "quantity": quantity}),
            quote_text(item, quantity, prices, ()),
        )
        for item, prices, quantity in product(PRICES, PRICE_LISTS, range(1, 10))
    ]


def learn(base: Path, out: Path, recorded: list[RecordedCall]) -> dict[str, Any]:
    builder = RowBuilder("prompt", "tenant", "tools", "recorded", "paths")
    for task in make_tasks(11, "train", 4):
        prompt = [
            {"role": "system", "content": SYSTEM_PROMPT},
            {"role": "user", "content": task.prompt},
        ]
        builder.add(
            task.task_id, prompt=prompt, tenant="acme", tools=[TOOL], recorded=recorded, paths=[]
        )

    def make_rows(_: Any) -> Rows:
        return builder.build()

    spec = load_recipe(RECIPE).spec
    training = spec.training.model_copy(
        update={"maximum_steps": 1, "batch_size": 32, "threads": 1, "log_steps": 1}
    )
    fit(spec.model_copy(update={"training": training}), base=base, make_rows=make_rows, out=out)
    found: dict[str, Any] = read_metrics(out / "metrics.jsonl")[0]
    return found


def test_tools_answer_from_the_record_and_a_miss_teaches_nothing(
    model_folder: Path, tmp_path: Path
) -> None:
    known = learn(model_folder, tmp_path / "known", everything_recorded())
    assert known["tools/call_frequency"] > 0.5
    assert known["replay/missed"] < 0.5
    unknown = learn(model_folder, tmp_path / "unknown", [])
    tried = min(1.0, unknown["tools/call_frequency"])  # a try that calls twice is missed once
    assert unknown["replay/missed"] == pytest.approx(tried, abs=0.3)
    assert unknown["replay/missed"] > known["replay/missed"]
