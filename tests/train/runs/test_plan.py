"""The planner says what each recipe could use, and never picks an empty or degenerate run."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from governance.records import GovernedBatch
from lakehouse.lake import Lake
from tests.train.lakes import Session, batch, lake_of
from tests.train.substrate.test_build import build, withdraw
from tests.train.test_recipes import attempts
from train.recipes import steps_per_epoch
from train.recipes.settings import RECIPES, Recipe, shipped_recipe
from train.runs.plan import LADDER, Plan, RecipePlan, plan_training
from train.substrate.manifest import SubstrateManifest
from trajectory.documents.document import merge
from trajectory.step import ToolCall, ToolResult

PURPOSES = ["train_sft", "train_preference", "train_rl"]


def planned(lake: Lake, out: Path, *, purposes: list[str] | None = None) -> Plan:
    return plan_training(lake, build(lake, out, purposes=purposes or PURPOSES))


def of(plan: Plan, name: str) -> RecipePlan:
    return next(entry for entry in plan.recipes if entry.recipe == name)


def test_ladder_names_every_recipe() -> None:
    # A reward model serves nobody, so no night ends with one.
    assert sorted((*LADDER, "reward_model")) == sorted(RECIPES)


def test_attempts_at_tasks_feed_every_recipe_but_the_one_that_needs_tokens(tmp_path: Path) -> None:
    found = planned(lake_of(tmp_path / "lake", *attempts(64)), tmp_path / "out")
    assert {entry.recipe for entry in found.recipes if entry.runnable} == {
        "sft",
        "awr",
        "dpo",
        "kto",
        "reward_model",
    }
    assert found.pick == "sft"
    assert of(found, "grpo_replay").fallen["no_exact_tokens"] > 0


def test_without_rewarded_items_the_next_rung_that_works_is_picked(tmp_path: Path) -> None:
    sessions = [Session(n, reward=0.1 + 0.05 * (n % 5)) for n in range(40)]
    found = planned(lake_of(tmp_path / "lake", *sessions), tmp_path / "out")
    assert found.pick == "awr"
    assert "sft (0 usable" in found.reason


def test_nothing_to_learn_from_is_no_pick_with_every_reason(tmp_path: Path) -> None:
    sessions = [Session(n, reward=0.0) for n in range(40)]
    found = planned(lake_of(tmp_path / "lake", *sessions), tmp_path / "out")
    assert found.pick is None
    assert all(name in found.reason for name in LADDER)


def test_recipe_whose_purpose_was_not_asked_for_is_passed_over(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *attempts(64))
    found = planned(lake, tmp_path / "out", purposes=["train_preference"])
    assert found.pick == "dpo"
    assert "purpose train_sft" in of(found, "sft").obstacles[0]


def test_stale_substrate_can_feed_nothing(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *attempts(64))
    manifest = build(lake, tmp_path / "out")
    withdraw(lake, "b2:subject-1")
    found = plan_training(lake, manifest)
    assert (found.pick, found.stale) == (None, 64)


def record_made(lake: Lake, manifest: SubstrateManifest) -> None:
    """Write down that ``sft`` as shipped made shop@0001 of a substrate."""
    now = datetime.now(UTC)
    run = {
        "run_id": "r1",
        "recorded_at": now,
        "recipe": "sft",
        "substrate": manifest.name,
        "substrate_version": manifest.version,
        "base_model": "base",
        "started_at": now,
        "status": "done",
        "seed": 0,
        "metrics": '{"tokens_per_second": 100.0}',
        "manifest": json.dumps({"recipe": shipped_recipe("sft").model_dump(mode="json")}),
    }
    lake.append_rows("runs", [run])


def record_status(lake: Lake, version: str, status: str) -> None:
    """Write down what a version of shop is from now on."""
    model = {
        "name": "shop",
        "version": version,
        "recorded_at": datetime.now(UTC),
        "run_id": "r1" if version == "0001" else "r0",
        "path": f"models/shop/{version}",
        "status": status,
        "gate": "{}",
    }
    lake.append_rows("models", [model])


def test_recipe_that_the_gate_refused_is_not_picked_again(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *attempts(64))
    manifest = build(lake, tmp_path / "out", purposes=PURPOSES)
    record_made(lake, manifest)
    record_status(lake, "0001", "refused")
    found = plan_training(lake, manifest)
    assert found.pick == "awr"
    cost = of(found, "sft").cost
    assert cost.seconds == pytest.approx(cost.tokens / 100, rel=0.01)
    changed = {"spec": {"training": {"learning_rate": 1e-4}}}
    document = merge(shipped_recipe("sft").model_dump(mode="json"), changed)
    again = plan_training(lake, manifest, recipes=[Recipe.model_validate(document)])
    assert again.pick == "sft", "a changed document deserves another try"


def test_what_another_model_learned_does_not_count(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *attempts(64))
    manifest = build(lake, tmp_path / "out", purposes=PURPOSES)
    record_made(lake, manifest)
    record_status(lake, "0001", "refused")
    for model, made, obstacles in (("shop", None, 1), ("other", None, 0)):
        line = of(plan_training(lake, manifest, model=model), "sft")
        assert (line.made, len(line.obstacles)) == (made, obstacles)
    record_status(lake, "0001", "candidate")
    for asked, made in (("shop", "shop@0001"), (None, "shop@0001"), ("other", None)):
        assert of(plan_training(lake, manifest, model=asked), "sft").made == made


@pytest.mark.parametrize(
    ("later", "awaits"),
    [
        ([], True),
        ([("0002", "candidate"), ("0003", "refused")], True),
        ([("0001", "live")], False),
        ([("0001", "canary"), ("0001", "candidate")], False),
        ([("0002", "live")], False),
        ([("0000", "live")], False),
    ],
    ids=["alone", "others came", "it serves", "it was tried", "another serves", "rolled back"],
)
def test_a_candidate_awaits_promotion_until_it_or_another_is_put_to_use(
    later: list[tuple[str, str]], awaits: bool, tmp_path: Path
) -> None:
    lake = lake_of(tmp_path / "lake", *attempts(64))
    manifest = build(lake, tmp_path / "out", purposes=PURPOSES)
    record_status(lake, "0000", "live")
    record_made(lake, manifest)
    for version, status in [("0001", "candidate"), *later]:
        record_status(lake, version, status)
    found = of(plan_training(lake, manifest), "sft")
    assert (found.made, found.awaits_promotion) == ("shop@0001", awaits)


def test_tasks_whose_calls_nobody_answered_cannot_be_tried_live(tmp_path: Path) -> None:
    def called(session: Session, *, answered: bool) -> GovernedBatch:
        whole = batch(session)
        first, second = whole.steps
        calls = (ToolCall(f"call-{session.number}", "price", "{}", True),)
        results = (ToolResult(f"call-{session.number}", None, False),) if answered else ()
        return replace(
            whole, steps=(replace(first, tool_calls=calls), replace(second, tool_results=results))
        )

    lake = Lake.open(str(tmp_path / "lake"))
    for number in range(12):
        session = Session(number, group=f"g{number}")
        lake.append(called(session, answered=number % 3 == 0), app_id="t", version=number)
    manifest = build(lake, tmp_path / "out", purposes=PURPOSES, split={"holdout": 0.0})
    live = {
        "spec": {
            "options": {"reward": "tests.train.test_rewards:brevity"},
            "evaluation": {"replay": {}},
        }
    }
    document = merge(shipped_recipe("grpo_live").model_dump(mode="json"), live)
    line = of(plan_training(lake, manifest, recipes=[Recipe.model_validate(document)]), "grpo_live")
    assert (line.usable, dict(line.fallen)) == (4, {"no_recorded_answer": 8})
    assert dict(line.held_out) == {"evaluation": 0}
    assert any("no environment replays" in obstacle for obstacle in line.obstacles)


@pytest.mark.parametrize(
    ("name", "options", "rows", "steps"),
    [
        ("sft", {}, 33, 3),
        ("grpo_replay", {"group_size": 4}, 12, 3),
        ("grpo_live", {"group_size": 8, "updates": 2}, 12, 12),
    ],
)
def test_a_step_of_grpo_sees_whole_groups(
    name: str, options: dict[str, int], rows: int, steps: int
) -> None:
    changed = {"spec": {"options": options, "training": {"batch_size": 16, "accumulation": 1}}}
    used = Recipe.model_validate(merge(shipped_recipe(name).model_dump(mode="json"), changed))
    assert steps_per_epoch(used.spec, rows) == steps
