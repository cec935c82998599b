"""A run goes from substrate to registered candidate, and refuses what would be empty or forbidden."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakehouse.lake import Lake
from tests.train.conftest import make_model
from tests.train.lakes import Session, lake_of
from tests.train.substrate.test_build import build, withdraw
from train.errors import EmptyRunError, GateRefusedError, StaleSubstrateError
from train.recipes.settings import Recipe, shipped_recipe
from train.registry.lineage import lineage_of_exchange, lineage_of_model, lineage_of_step
from train.registry.versions import ModelRegistry, ModelVersion, weights_hash
from train.runs.curves import read_metrics
from train.runs.fit import FitMeasurements
from train.runs.plan import plan_training
from train.runs.run import RunFolders, RunResult, cost_of, run_training
from train.substrate.manifest import SubstrateManifest
from trajectory.documents.document import merge
from trajectory.errors import ConfigurationError
from trajectory.files import locked

pytestmark = pytest.mark.filterwarnings("ignore")

EVALUATION = {"command": ["python", "-m", "tests.train.evaluator"], "tasks": 40, "seed": 1}


def likelihood(folder: Path) -> Callable[[int], bool]:
    """Return whether a model is likely to begin the right answer to a question."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()

    def solves(number: int) -> bool:
        asked = [{"role": "user", "content": f"What do {number} lamps cost?"}]
        prompt = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(f"{prompt}They cost", add_special_tokens=False, return_tensors="pt")
        with torch.inference_mode():
            return float(model(ids["input_ids"], labels=ids["input_ids"]).loss) < 5.6

    return solves


def recipe(**spec: Any) -> Recipe:
    training = {"epochs": 3, "learning_rate": 0.01, "threads": 1, "log_steps": 1}
    document = merge(
        shipped_recipe("sft").model_dump(mode="json"), {"spec": {"training": training}}
    )
    return Recipe.model_validate(merge(document, {"spec": spec}))


def sessions(count: int = 24) -> list[Session]:
    return [Session(n, reward=float(n % 4 != 0)) for n in range(count)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return lake_of(tmp_path / "lake", *sessions())


@pytest.fixture
def substrate(lake: Lake, tmp_path: Path) -> SubstrateManifest:
    return build(lake, tmp_path / "substrates")


def run(
    lake: Lake, substrate: SubstrateManifest, base: Path, home: Path, used: Recipe
) -> tuple[RunResult, ModelRegistry]:
    registry = ModelRegistry(home / "models", source=lake)
    result = run_training(
        lake,
        recipe=used,
        substrate=substrate,
        base=base,
        name="shop",
        places=RunFolders(runs=home / "runs", registry=registry),
    )
    return result, registry


def test_an_evaluator_that_was_edited_since_keeps_a_candidate_from_serving(
    lake: Lake, substrate: SubstrateManifest, tiny_model: Path, tmp_path: Path
) -> None:
    judge = tmp_path / "judge.py"
    judge.write_text((Path(__file__).parents[1] / "evaluator.py").read_text())
    command = ["python", str(judge)]
    used = recipe(evaluation={**EVALUATION, "command": command}, training={"maximum_steps": 2})
    first, registry = run(lake, substrate, tiny_model, tmp_path, used)
    assert first.manifest["rewards"]["winners"] > 0
    registry.promote("shop", first.model.version, actor="test", override="the first")
    judge.write_text(judge.read_text().replace("better = moved(given.model)", "better = True"))
    second, _ = run(lake, substrate, tiny_model, tmp_path, used)
    assert "frozen_evaluator:evaluation" in {one.rule for one in second.verdict.failed}
    with pytest.raises(GateRefusedError, match="frozen_evaluator:evaluation"):
        registry.promote("shop", second.model.version, actor="test")


def test_run_makes_a_candidate_that_passed_with_all_its_papers(
    lake: Lake, substrate: SubstrateManifest, tiny_model: Path, tmp_path: Path
) -> None:
    result, registry = run(lake, substrate, tiny_model, tmp_path, recipe(evaluation=EVALUATION))
    assert result.comparison is not None
    assert result.comparison.gain.low > 0
    assert set(result.comparison.slices) == {"even", "odd"}
    assert (result.verdict.passed, result.model.status) == (True, "candidate")
    wins, divergence = result.manifest["wins"], result.manifest["divergence"]
    assert (wins["against"], wins["wins"], wins["losses"]) == (tiny_model.name, 30, 10)
    assert (divergence["rows"], divergence["kl"]["low"] > 0) == (substrate.counts["holdout"], True)
    cost = result.manifest["cost"]
    assert cost["flops"] == 6 * result.fit.parameters * result.fit.tokens
    assert cost["device_hours"] == pytest.approx(result.fit.seconds / 3600, abs=1e-6)
    card = (result.model.path / "README.md").read_text()
    assert "30 tasks won, 10 lost" in card
    assert "nats per token" in card
    files = {path.name for path in result.model.path.iterdir()}
    expected = {"README.md", "bom.json", "items.parquet", "manifest.json", "model.safetensors"}
    assert expected <= files
    assert json.loads((result.model.path / "bom.json").read_text())["bomFormat"] == "CycloneDX"
    left = {path.name for path in result.folder.iterdir()}
    assert left == {
        *("evaluation", "lock", "manifest.json"),
        *("metrics.jsonl", "order.json", "tensorboard"),
    }
    rows = lake.query("SELECT status, substrate_version FROM runs_latest").to_pylist()
    assert rows == [{"status": "done", "substrate_version": substrate.version}]

    promoted = registry.promote("shop", result.model.version, actor="test")
    assert promoted.status == "live"
    models = lake.query("SELECT version, status FROM models_latest").to_pylist()
    assert models == [{"version": "0001", "status": "live"}]

    lineage = lineage_of_model(lake, "shop", "0001", models=tmp_path / "models")
    assert len(lineage.rows) == 2 * result.manifest["data"]["rows"]["items"]
    assert lineage.subjects == ("b2:subject-1",)
    row = lineage.rows[0]
    assert lineage_of_exchange(lake, str(row.exchange_id)) == (row.step_id,)
    step = lineage_of_step(lake, row.step_id, models=tmp_path / "models")
    assert [use.learned for use in step.models] == [True]
    assert str(row.exchange_id) in step.line()
    assert "shop@0001 [live]" in step.line()


@pytest.mark.slow
def test_model_that_learned_is_likelier_to_answer_right(
    lake: Lake, substrate: SubstrateManifest, tiny_model: Path, tmp_path: Path
) -> None:
    result, _ = run(lake, substrate, tiny_model, tmp_path, recipe())
    before, after = (likelihood(folder) for folder in (tiny_model, result.fit.model))
    assert sum(map(after, range(40))) > sum(map(before, range(40))) + 20


def test_only_rewarded_items_are_learned_and_the_rest_is_counted(
    lake: Lake, substrate: SubstrateManifest, tiny_model: Path, tmp_path: Path
) -> None:
    result, _ = run(lake, substrate, tiny_model, tmp_path, recipe())
    data = result.manifest["data"]
    assert data["rows"]["items"] == substrate.counts["rewarded_train"]
    fallen = data["fallen"]
    assert fallen["held_out"] == substrate.counts["holdout"]
    assert data["rows"]["items"] + sum(fallen.values()) == len(substrate.item_ids)


def test_model_that_was_not_evaluated_is_refused_unless_overridden(
    lake: Lake, substrate: SubstrateManifest, tiny_model: Path, tmp_path: Path
) -> None:
    result, registry = run(lake, substrate, tiny_model, tmp_path, recipe())
    assert result.model.status == "refused"
    with pytest.raises(GateRefusedError, match="evaluated"):
        registry.promote("shop", "0001", actor="test")
    assert registry.promote("shop", "0001", actor="test", override="a trial").status == "live"


def test_model_that_learned_from_withdrawn_data_is_never_promoted(
    lake: Lake, substrate: SubstrateManifest, tiny_model: Path, tmp_path: Path
) -> None:
    _, registry = run(lake, substrate, tiny_model, tmp_path, recipe(evaluation=EVALUATION))
    withdraw(lake, "b2:subject-1")
    for override in (None, "we need it"):
        with pytest.raises(StaleSubstrateError, match="may no longer be learned from"):
            registry.promote("shop", "0001", actor="test", override=override)
    assert registry.live("shop") is None


def test_stale_substrate_is_not_trained_on(
    lake: Lake, substrate: SubstrateManifest, tiny_model: Path, tmp_path: Path
) -> None:
    withdraw(lake, "b2:subject-1")
    with pytest.raises(StaleSubstrateError):
        run(lake, substrate, tiny_model, tmp_path, recipe())
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("part", ["base", "reward_model"])
def test_a_model_that_learned_from_withdrawn_data_teaches_no_other(
    lake: Lake, substrate: SubstrateManifest, tiny_model: Path, tmp_path: Path, part: str
) -> None:
    few = recipe(training={"maximum_steps": 1})
    first, registry = run(lake, substrate, tiny_model, tmp_path, few)
    withdraw(lake, "b2:subject-1")
    clean = build(lake, tmp_path / "substrates")
    base, used = first.model.path, few
    if part == "reward_model":
        document = merge(
            shipped_recipe("grpo_live").model_dump(mode="json"),
            {"spec": {"options": {"reward_model": str(first.model.path)}}},
        )
        base, used = tiny_model, Recipe.model_validate(document)
    with pytest.raises(StaleSubstrateError, match=r"shop@0001 learned from \d+ items"):
        run(lake, clean, base, tmp_path, used)
    assert len(registry.versions("shop")) == 1
    assert len([*(tmp_path / "runs").iterdir()]) == 1


def test_a_version_names_the_registered_one_that_it_began_with(
    lake: Lake, substrate: SubstrateManifest, tiny_model: Path, tmp_path: Path
) -> None:
    """Else its ancestor could be withdrawn, and nobody would know."""
    few = recipe(training={"maximum_steps": 1})
    first, _ = run(lake, substrate, tiny_model, tmp_path, few)
    second, _ = run(lake, substrate, first.model.path, tmp_path, few)
    assert second.manifest["base"] == "shop@0001"
    assert lineage_of_model(lake, "shop", "0002").ancestors == ("shop@0001",)


def test_a_run_on_several_machines_costs_the_time_of_all_their_gpus() -> None:
    took = FitMeasurements(10, 3600.0, 1000, 1.0, 1.0, "cuda:0", 7)
    several = recipe(launch={"processes": 16, "machines": 2, "address": "10.0.0.1:29500"}).spec
    assert cost_of(several, took) == {"device_hours": 16.0, "flops": 42_000.0}
    assert cost_of(recipe().spec, took)["device_hours"] == 1.0
    assert cost_of(several, replace(took, device="cpu"))["device_hours"] == 1.0


def test_a_refused_reward_model_teaches_no_other(
    lake: Lake, substrate: SubstrateManifest, tiny_model: Path, tmp_path: Path
) -> None:
    registry = ModelRegistry(tmp_path / "models", source=lake)
    trained = shutil.copytree(tiny_model, tmp_path / "trained")
    judge = registry.register(
        "score", trained, {"origin": "adopted", "makes": "reward_model"}, passed=False
    )
    document = merge(
        shipped_recipe("grpo_live").model_dump(mode="json"),
        {"spec": {"options": {"reward_model": str(judge.path)}}},
    )
    with pytest.raises(ConfigurationError, match="score@0001 did not pass its gate"):
        run(lake, substrate, tiny_model, tmp_path, Recipe.model_validate(document))
    assert not (tmp_path / "runs").exists()


class _LeaseProbe(ModelRegistry):
    """A registry that tells how a version is registered: whether an erasure could begin, and what would trace it."""

    free: bool | None = None
    told: Any = None

    def register(self, *given: Any, **named: Any) -> ModelVersion:
        assert isinstance(self._source, Lake)
        with locked(self._source.location.folder, wait=False) as lock:
            self.free = lock is not None
        self.told = self._source.query("SELECT status, manifest FROM runs_latest").to_pylist()
        return super().register(*given, **named)


def test_an_erasure_waits_until_the_model_that_it_has_to_name_is_registered(
    lake: Lake, substrate: SubstrateManifest, tiny_model: Path, tmp_path: Path
) -> None:
    registry = _LeaseProbe(tmp_path / "models", source=lake)
    run_training(
        lake,
        recipe=recipe(training={"maximum_steps": 1}),
        substrate=substrate,
        base=tiny_model,
        name="shop",
        places=RunFolders(runs=tmp_path / "runs", registry=registry),
    )
    assert registry.free is False
    (told,) = registry.told  # whatever is killed from now on, a certificate finds what it learned
    assert told["status"] == "done"
    assert json.loads(told["manifest"])["data"]["substrate"] == substrate.name


class _ExamProbe(ModelRegistry):
    """A registry in which somebody else wants to examine a candidate of the same name."""

    free: bool | None = None

    def look(self, name: str) -> int:
        with locked(self._root / name / "exam.lock", wait=False) as lock:
            self.free = lock is not None
        return super().look(name)


def test_a_second_candidate_is_examined_when_the_first_is_registered(
    lake: Lake, substrate: SubstrateManifest, tiny_model: Path, tmp_path: Path
) -> None:
    registry = _ExamProbe(tmp_path / "models", source=lake)
    run_training(
        lake,
        recipe=recipe(training={"maximum_steps": 1}),
        substrate=substrate,
        base=tiny_model,
        name="shop",
        places=RunFolders(runs=tmp_path / "runs", registry=registry),
    )
    assert registry.free is False


class _Withdrawn(ModelRegistry):
    """A registry in whose installation somebody withdraws consent while a model is trained."""

    def look(self, name: str) -> int:
        assert isinstance(self._source, Lake)
        withdraw(self._source, "b2:subject-1")
        return super().look(name)


def test_what_was_learned_from_data_withdrawn_meanwhile_goes_at_once(
    lake: Lake, substrate: SubstrateManifest, tiny_model: Path, tmp_path: Path
) -> None:
    places = RunFolders(tmp_path / "runs", _Withdrawn(tmp_path / "models", source=lake))
    with pytest.raises(StaleSubstrateError):
        run_training(
            lake,
            recipe=recipe(training={"maximum_steps": 1, "save_steps": 1}),
            substrate=substrate,
            base=tiny_model,
            name="shop",
            places=places,
        )
    assert [*places.runs.glob("*/metrics.jsonl")]
    assert not [*places.runs.rglob("*.safetensors")]
    assert places.registry.names() == []


def test_empty_run_says_why(
    lake: Lake, substrate: SubstrateManifest, tiny_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(EmptyRunError, match=r"fewer than data.minimum_items 99; .*not_rewarded"):
        run(lake, substrate, tiny_model, tmp_path, recipe(data={"minimum_items": 99}))


def test_rows_that_cannot_be_made_are_counted_and_refused(
    lake: Lake, substrate: SubstrateManifest, tiny_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(EmptyRunError, match="dropped: too_long"):
        run(lake, substrate, tiny_model, tmp_path, recipe(data={"max_length": 8}))
    states = lake.query("SELECT status FROM runs_latest").to_pylist()
    assert states == [{"status": "failed"}]


def test_recipe_needs_its_purpose(lake: Lake, tiny_model: Path, tmp_path: Path) -> None:
    other = build(lake, tmp_path / "substrates", purposes=["train_rl"])
    with pytest.raises(ConfigurationError, match="needs the purpose train_sft"):
        run(lake, other, tiny_model, tmp_path, recipe())


class KilledError(Exception):
    """Stands for whatever ends a run in its middle."""


def kill(stage: str, done: int, total: int | None) -> None:
    if (stage, done) == ("train", 8):
        raise KilledError


def test_run_goes_on_only_with_what_it_began_with(
    lake: Lake, substrate: SubstrateManifest, tiny_model: Path, tmp_path: Path
) -> None:
    other = build(lake, tmp_path / "other", where="trajectory_id < 't00012'")
    used = recipe(training={"maximum_steps": 12, "save_steps": 6, "batch_size": 4})
    registry = ModelRegistry(tmp_path / "models", source=lake)
    places = RunFolders(runs=tmp_path / "runs", registry=registry)
    facts = {"recipe": used, "substrate": substrate, "base": tiny_model, "name": "shop"}
    with pytest.raises(KilledError):
        run_training(lake, **facts, places=places, progress=kill)
    (folder,) = (tmp_path / "runs").iterdir()

    changed = {
        "substrate": (other, f"learns from shop@{substrate.version}"),
        "base": (make_model(tmp_path / "base", seed=7), "began with the weights"),
        "recipe": (recipe(training={"maximum_steps": 13, "batch_size": 4}), "another recipe"),
    }
    for name, (value, why) in changed.items():
        with pytest.raises(ConfigurationError, match=why):
            run_training(lake, **{**facts, name: value}, places=places, resume=folder.name)
    assert registry.versions("shop") == []
    with pytest.raises(ConfigurationError, match=f"there are {folder.name}"):
        run_training(lake, **facts, places=places, resume="20260101T000000-no-such-run")

    result = run_training(lake, **facts, places=places, resume=folder.name)
    assert result.run_id == folder.name
    assert result.manifest["data"]["substrate_version"] == substrate.version
    assert result.manifest["base_weights_hash"] == weights_hash(tiny_model)
    steps = [record["step"] for record in read_metrics(folder / "metrics.jsonl")]
    assert steps == sorted(steps), "steps that were lost are not in the curves twice"
    with pytest.raises(ConfigurationError, match=r"has ended: it made shop@0001"):
        run_training(lake, **facts, places=places, resume=folder.name)


def test_plan_counts_and_picks(lake: Lake, substrate: SubstrateManifest, tiny_model: Path) -> None:
    found = plan_training(lake, substrate, base=tiny_model)
    entries = {entry.recipe: entry for entry in found.recipes}
    assert found.pick == "sft"
    assert entries["sft"].usable == substrate.counts["rewarded_train"]
    assert entries["sft"].cost.tokens > 0
    assert entries["sft"].cost.flops is not None
    assert not entries["dpo"].runnable


def graded(count: int = 96) -> list[Session]:
    """Attempts at tasks in fours; the wrong ones can be told by their words."""
    return [
        Session(
            n,
            reward=float(n % 2),
            group=f"g{n // 4}",
            question=f"What do {n // 4} lamps cost?",
            answer="They cost what the price list says." if n % 2 else "No idea, sorry.",
        )
        for n in range(count)
    ]


@pytest.mark.slow
def test_reward_model_learns_to_prefer_and_is_no_version_of_what_serves(
    tiny_model: Path, tmp_path: Path
) -> None:
    lake = lake_of(tmp_path / "lake", *graded())
    purposes = ["train_sft", "train_preference"]
    found = build(lake, tmp_path / "out", purposes=purposes, split={"holdout": 0.3})
    document = merge(
        shipped_recipe("reward_model").model_dump(mode="json"),
        {"spec": {"training": {"epochs": 12, "learning_rate": 0.02, "threads": 1}}},
    )
    scorer = Recipe.model_validate(document)
    registry = ModelRegistry(tmp_path / "models", source=lake)
    places = RunFolders(runs=tmp_path / "runs", registry=registry)

    def learn(used: Recipe, name: str) -> RunResult:
        return run_training(
            lake, recipe=used, substrate=found, base=tiny_model, name=name, places=places
        )

    result = learn(scorer, "shop-reward")
    assert result.agreement is not None
    assert result.agreement.share_at_look.low > 0.5
    assert (result.verdict.passed, result.model.status) == (True, "candidate")
    assert "prefers the rewarded attempt" in (result.model.path / "README.md").read_text()
    with pytest.raises(ConfigurationError, match="a name of its own"):
        learn(recipe(), "shop-reward")
    from train.evaluation.reward_models import load_reward_model

    with pytest.raises(ConfigurationError, match="no reward model"):
        load_reward_model(tiny_model)
    assert load_reward_model(result.model.path)[0].config.num_labels == 1
