"""An evaluator is known again; where one of its files or settings changes, the change is seen."""

from pathlib import Path
from typing import Any

import pytest

from tests.trajectory.test_plugins import install
from train.evaluation.evaluator_identity import changed_parts, evaluator_hashes
from train.recipes.settings import RecipeSpec
from trajectory.plugins import REWARDS, plugins


def hashes(**spec: Any) -> dict[str, str]:
    return evaluator_hashes(RecipeSpec.model_validate({"recipe": "sft", **spec}))


def test_how_many_tasks_are_tried_is_no_other_evaluator() -> None:
    command = ["python", "-m", "tests.train.evaluator"]
    few = hashes(evaluation={"command": command, "tasks": 20, "seed": 1})
    many = hashes(evaluation={"command": command, "tasks": 90, "seed": 2, "timeout_seconds": 9})
    assert few == many
    assert few.keys() == {"evaluation"}


def test_how_sure_a_suite_wants_to_be_is_part_of_the_evaluator() -> None:
    command = ["python", "-m", "tests.train.evaluator"]
    before = hashes(evaluation={"command": command})
    after = hashes(evaluation={"command": command, "confidence": 0.51})
    assert changed_parts(before, after) == ("evaluation",)


def test_a_package_whose_program_changes_is_another_evaluator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "judging"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("strict()")
    monkeypatch.syspath_prepend(tmp_path)
    command = ["python", "-m", package.name]
    before = hashes(evaluation={"command": command})
    (package / "__main__.py").write_text("kind()")
    assert changed_parts(before, hashes(evaluation={"command": command})) == ("evaluation",)


@pytest.mark.parametrize("change", ["program", "argument", "gone"])
def test_a_program_that_changes_is_another_evaluator(tmp_path: Path, change: str) -> None:
    program = tmp_path / "judge.py"
    program.write_text("success = checked()")
    command = ["python", str(program), "--strict"]
    before = hashes(evaluation={"command": command})
    if change == "program":
        program.write_text("success = True")
    elif change == "argument":
        command = command[:-1]
    else:
        program.unlink()
    assert changed_parts(before, hashes(evaluation={"command": command})) == ("evaluation",)


def test_a_program_that_is_called_by_its_own_path_is_seen_to_change(tmp_path: Path) -> None:
    program = tmp_path / "judge"
    program.write_text("#!/bin/sh\nexec strict")
    before = hashes(evaluation={"command": [str(program)]})
    program.write_text("#!/bin/sh\nexec kind")
    after = hashes(evaluation={"command": [str(program)]})
    assert changed_parts(before, after) == ("evaluation",)


@pytest.mark.parametrize("plugin", [False, True])
@pytest.mark.parametrize("place", ["reward", "gold"])
def test_a_reward_function_whose_module_changes_is_another_evaluator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, plugin: bool
) -> None:
    module = tmp_path / f"rewards_for_{place}.py"
    module.write_text("def score(prompt, completion): return 0.0")
    monkeypatch.syspath_prepend(tmp_path)
    named = f"{module.stem}:score"
    if plugin:
        install(tmp_path, "acme", REWARDS, f"ours = {named}")
    plugins.cache_clear()
    suite = {"replay": {place: "ours" if plugin else named}}
    before = hashes(evaluation=suite, regression=suite)
    assert hashes(evaluation=suite, regression=suite) == before
    module.write_text("def score(prompt, completion): return 1.0")
    after = hashes(evaluation=suite, regression=suite)
    plugins.cache_clear()
    assert changed_parts(before, after) == ("evaluation", "regression")


def test_a_suite_of_safety_that_changes_is_another_evaluator(tmp_path: Path) -> None:
    suite = tmp_path / "safety.yaml"
    suite.write_text("one")
    before = hashes(safety={"suite": str(suite)})
    suite.write_text("two")
    assert changed_parts(before, hashes(safety={"suite": str(suite)})) == ("safety",)


def test_a_suite_that_is_left_out_is_a_change_and_a_further_one_is_none() -> None:
    command = {"command": ["true"]}
    both = hashes(evaluation=command, safety={})
    assert changed_parts(both, hashes(evaluation=command)) == ("safety",)
    assert changed_parts(hashes(evaluation=command), both) == ()
    assert changed_parts({}, both) == ()
