"""One training run from substrate to registered candidate, with everything that proves it."""

import json
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from train.errors import EmptyRunError, StaleSubstrateError
from train.evaluation.assess import Assessment, Assessor, NamedModel
from train.evaluation.evaluate import Comparison
from train.evaluation.evaluator_identity import evaluator_hashes
from train.evaluation.gate import GateVerdict
from train.evaluation.held_out import HeldOutTasks, examined_by_replay, held_out_tasks
from train.evaluation.replayable import select
from train.evaluation.reward_audit import audit_rewards
from train.evaluation.reward_models import Agreement
from train.generation import readable_tokenizer
from train.recipes import recipe_module, reward_model_of
from train.recipes.base import Rows, Selection
from train.recipes.credit import credit_selection
from train.recipes.settings import Recipe, RecipeSpec
from train.registry.versions import ModelRegistry, ModelVersion, weights_hash
from train.runs.fit import FitMeasurements, FitResult, fit
from train.runs.folders import delete_learned, run_lock, sweep
from train.runs.hardware import choose_gpus, code_facts, machine_facts
from train.runs.order import MANIFEST, ORDER, RunOrder
from train.runs.rows import Masker
from train.substrate.content import ContentStore
from train.substrate.manifest import SubstrateManifest, load_items, require_fresh
from train.substrate.source import LearningSource, Progress, silent
from train.types import Item
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError, HeadraceError
from trajectory.files import READABLE, replace_file


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a run; the run's manifest holds all of it."""

    run_id: str
    folder: Path
    """``metrics.jsonl``, ``tensorboard/``, ``manifest.json``, evaluation reports."""
    fit: FitResult
    assessment: Assessment
    model: ModelVersion
    """The registered candidate, or a refused version."""
    manifest: Mapping[str, Any]

    @property
    def comparison(self) -> Comparison | None:
        """With the base; None when the recipe names no evaluator."""
        return self.assessment.comparison

    @property
    def agreement(self) -> Agreement | None:
        """Of a reward model: how often it prefers the rewarded attempt of a held-out task."""
        return self.assessment.agreement

    @property
    def verdict(self) -> GateVerdict:
        """The gate's verdict."""
        return self.assessment.verdict


@dataclass(frozen=True, slots=True)
class RunFolders:
    """Folders that a run reads and writes."""

    runs: Path
    """Folder that gets one folder per run."""
    registry: ModelRegistry


def run_training(
    source: LearningSource,
    *,
    recipe: Recipe,
    substrate: SubstrateManifest,
    base: Path,
    name: str,
    places: RunFolders,
    resume: str | None = None,
    progress: Progress = silent,
) -> RunResult:
    """Train a candidate from a substrate, evaluate it beside its base, judge and register it.

    Args:
        source: the lake.
        recipe: how to learn, evaluate and judge.
        substrate: what to learn from; refused when anything in it may no longer be learned from.
        base: model folder that training begins with.
        name: of the model in the registry.
        places: folders and registry.
        resume: an interrupted run to go on with, from its last checkpoint; :data:`~train.runs.order.LAST` is the newest
            that began with the same, and where there is none, a new run begins.
        progress: called with stage, done and total.

    Raises:
        ConfigurationError: the run to go on with began with something else, or has ended; or the reward model did not
            pass its gate.
        StaleSubstrateError: consent was withdrawn, or something was erased, since it was built, or since the base
            or the reward model learned.
        EmptyRunError: too few usable items or rows; the text counts why each fell away.
        TrainingError: the trainer failed.
        EvaluationError: the evaluator failed; the run's folder keeps the trained model.
    """
    choose_gpus(recipe.spec.gpus)
    sweep(source, places.runs)
    require_permitted(source, places.registry, substrate, recipe, base)
    places.registry.require_kind(name, recipe_module(recipe.spec.recipe).makes)
    selection = usable(source, recipe, substrate)
    tasks = examined_on(source, recipe, substrate, base)
    started = datetime.now(UTC)
    order = RunOrder(
        substrate=f"{substrate.name}@{substrate.version}",
        base=str(base.resolve()),
        base_weights_hash=weights_hash(base),
        recipe=recipe.model_dump(mode="json"),
    )
    interrupted = order.interrupted(places.runs, resume)
    folder = places.runs / (interrupted or _run_id(recipe, started))
    label = places.registry.label_of(base) or base.name
    run = _Run(source, recipe, substrate, base, label, order, folder, started)
    with run_lock(folder):
        if interrupted is None:
            replace_file(folder / ORDER, canonical_json(asdict(order)), READABLE)
        with run.state_recorded():
            result = run.carry_out(
                selection,
                tasks,
                name,
                places.registry,
                resume=interrupted is not None,
                progress=progress,
            )
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        progress("done", 1, 1)
        return result


def require_permitted(
    source: LearningSource,
    registry: ModelRegistry,
    substrate: SubstrateManifest,
    recipe: Recipe,
    base: Path,
) -> None:
    """Refuse what may not teach: withdrawn rows, models that learned such rows, a refused reward model.

    Raises:
        StaleSubstrateError: something of it was withdrawn, erased or has expired.
        ConfigurationError: the reward model did not pass its gate.
    """
    require_fresh(source, substrate)
    registry.require_permitted(base)
    if (judge := reward_model_of(recipe.spec)) is not None:
        registry.require_scorer(judge)


def examined_on(
    source: LearningSource, recipe: Recipe, substrate: SubstrateManifest, base: Path
) -> dict[str, HeldOutTasks]:
    """Return the held-out tasks of each suite that is tried in the replayed environment.

    Raises:
        EmptyRunError: no environment replays; said before anything is trained.
        ConfigurationError: nobody could read the model's tool calls.
    """
    found = {
        name: held_out_tasks(source, load_items(substrate), suite)
        for name, suite in examined_by_replay(recipe.spec).items()
    }
    for name, tasks in found.items():
        tasks.require(name)
        readable_tokenizer(base, tools=any(task.tools for task in tasks.tasks))
    return found


def usable(source: LearningSource, recipe: Recipe, substrate: SubstrateManifest) -> Selection:
    """Return what a recipe would use of a substrate.

    Raises:
        ConfigurationError: the substrate does not require the purpose that the recipe needs.
        EmptyRunError: less than ``data.minimum_items``.
    """
    module = recipe_module(recipe.spec.recipe)
    if module.purpose not in substrate.spec.purposes:
        raise ConfigurationError(
            f"recipe {module.name} needs the purpose {module.purpose}, but substrate {substrate.name} "
            f"only asked for {', '.join(substrate.spec.purposes)}; add it to the substrate's purposes"
        )
    selection = select(source, recipe.spec, load_items(substrate))
    if len(selection.units) < recipe.spec.data.minimum_items:
        raise EmptyRunError(
            f"recipe {module.name} can use {len(selection.units)} of {len(substrate.item_ids)} items of "
            f"{substrate.name} {substrate.version}, fewer than data.minimum_items "
            f"{recipe.spec.data.minimum_items}; not used: {_reasons(selection.fallen)}; items fell away: "
            f"{_reasons(substrate.left_out_items)}; steps: {_reasons(substrate.left_out_steps)}"
        )
    return selection


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in counts.items()) or "none"


def _run_id(recipe: Recipe, started: datetime) -> str:
    return f"{started:%Y%m%dT%H%M%S}-{recipe.metadata.name}-{secrets.token_hex(3)}"


@dataclass(frozen=True, slots=True)
class _Run:
    """The facts of one run while it goes on."""

    source: LearningSource
    recipe: Recipe
    substrate: SubstrateManifest
    base: Path
    base_label: str
    """``name@version``, by which what it learned is known; its folder's name where it is no registered version."""
    order: RunOrder
    folder: Path
    started: datetime

    @property
    def run_id(self) -> str:
        """The name of the run's folder."""
        return self.folder.name

    @contextmanager
    def state_recorded(self) -> Iterator[None]:
        """Record in the lake that the run is under way, and how it stopped where it fails."""
        self.record("running")
        try:
            yield
        except HeadraceError as error:
            self.record("failed", {"error": str(error)})
            if isinstance(error, StaleSubstrateError):  # withdrawn or erased while it learned
                delete_learned(self.folder)
            raise
        except KeyboardInterrupt:
            self.record("interrupted")
            raise
        except BaseException as error:
            self.record("failed", {"error": type(error).__name__})
            raise

    def carry_out(
        self,
        selection: Selection,
        tasks: Mapping[str, HeldOutTasks],
        name: str,
        registry: ModelRegistry,
        *,
        resume: bool,
        progress: Progress,
    ) -> RunResult:
        began = time.monotonic()
        evaluator = evaluator_hashes(self.recipe.spec)
        fitted = fit(
            self.recipe.spec,
            base=self.base,
            make_rows=lambda tokenizer: self._rows(selection, tokenizer),
            out=self.folder,
            resume=resume,
            progress=progress,
        )
        with registry.examining(name):
            serving = registry.live(name)
            current = NamedModel(self.base_label, self.base)
            if serving is not None:
                current = NamedModel(serving.label, serving.path)
            assessor = self._assessor(
                current, tasks, registry.look(name), evaluator, judge_of(serving), progress
            )
            found = assessor.assess(fitted.model)
            manifest = self._manifest(selection, fitted, found)
            if (judge := reward_model_of(self.recipe.spec)) is not None:
                manifest["reward_model"] = registry.label_of(judge)
            manifest["replay"] = _replay(tasks, found)
            manifest["seconds"] = round(time.monotonic() - began, 3)
            # An erasure waits, and then names the model: its certificate tells all that learned.
            with self.source.lease():
                # The folder may have moved, been erased or lost its consent while we trained.
                require_permitted(self.source, registry, self.substrate, self.recipe, self.base)
                write_items(
                    fitted.model / "items.parquet", [entry.item for entry in selection.items]
                )
                # First, so that the lake can trace a version whose run is killed before it ends.
                self.record("done", manifest)
                model = registry.register(name, fitted.model, manifest, passed=found.verdict.passed)
                manifest["model"] = model.label
                replace_file(self.folder / MANIFEST, canonical_json(manifest), READABLE)
        return RunResult(
            run_id=self.run_id,
            folder=self.folder,
            fit=replace(fitted, model=model.path),
            assessment=found,
            model=model,
            manifest=manifest,
        )

    def _make_rows(self, recipe: str, selection: Selection, tokenizer: Any) -> Rows:
        masker = Masker(tokenizer, max_length=self.recipe.spec.data.max_length)
        module = recipe_module(recipe)
        credit = credit_selection(self.recipe.spec, self.substrate.spec.reward.weights)
        items = [entry.item for entry in selection.items]
        content = ContentStore.read(self.source, items, credit=credit, corrected=True)
        return module.rows(selection, content, masker, self.recipe.spec)

    def _rows(self, selection: Selection, tokenizer: Any) -> Rows:
        rows = self._make_rows(self.recipe.spec.recipe, selection, tokenizer)
        if len(rows) < self.recipe.spec.data.minimum_items:
            raise EmptyRunError(
                f"only {len(rows)} rows could be made of {len(selection.units)} usable items, fewer than "
                f"data.minimum_items {self.recipe.spec.data.minimum_items}; dropped: {_reasons(rows.dropped)}"
            )
        return rows

    def _assessor(
        self,
        current: NamedModel,
        tasks: Mapping[str, HeldOutTasks],
        look: int,
        evaluator: Mapping[str, str],
        frozen: Mapping[str, str],
        progress: Progress,
    ) -> Assessor:
        items = tuple(load_items(self.substrate))
        return Assessor(
            spec=self.recipe.spec,
            base=NamedModel(self.base_label, self.base),
            current=current,
            items=items,
            make_rows=self._make_rows,
            tasks=tasks,
            look=look,
            reports=self.folder / "evaluation",
            progress=progress,
            rewards=audit_rewards(self.source, items, self.substrate.spec.reward),
            evaluator=evaluator,
            frozen=frozen,
        )

    def _manifest(
        self,
        selection: Selection,
        fitted: FitResult,
        found: Assessment,
    ) -> dict[str, Any]:
        rows = fitted.rows
        return {
            "run_id": self.run_id,
            "started_at": self.started.isoformat(),
            "base": self.base_label,
            "base_weights_hash": self.order.base_weights_hash,
            "makes": recipe_module(self.recipe.spec.recipe).makes,
            "recipe": self.recipe.model_dump(mode="json"),
            "data": {
                "substrate": self.substrate.name,
                "substrate_version": self.substrate.version,
                "content_hash": self.substrate.content_hash,
                "purposes": list(self.substrate.spec.purposes),
                "table_versions": dict(self.substrate.table_versions),
                "policy_hashes": list(self.substrate.policy_hashes),
                "rows": {"items": len(selection.items), "rows": len(rows), "tokens": rows.tokens},
                "dropped": dict(rows.dropped),
                "fallen": dict(selection.fallen),
            },
            "training": {
                "steps": fitted.steps,
                "seconds": round(fitted.seconds, 3),
                "tokens": fitted.tokens,
                "tokens_per_second": round(fitted.tokens / max(fitted.seconds, 1e-9), 1),
                "final_loss": fitted.final_loss,
                "peak_memory_mib": round(fitted.peak_memory_mib, 1),
                "device": fitted.device,
                "parameters": fitted.parameters,
                "seed": self.recipe.spec.training.seed,
            },
            "evaluation": None if found.comparison is None else asdict(found.comparison),
            "wins": None if found.wins is None else asdict(found.wins),
            "regression": None if found.regression is None else asdict(found.regression),
            "divergence": None if found.divergence is None else asdict(found.divergence),
            "canaries": None if found.canaries is None else asdict(found.canaries),
            "safety": None if found.safety is None else asdict(found.safety),
            "rewards": None if found.rewards is None else asdict(found.rewards),
            "evaluator": dict(found.evaluator),
            "agreement": None if found.agreement is None else asdict(found.agreement),
            "gate": asdict(found.verdict),
            "cost": cost_of(self.recipe.spec, fitted),
            "code": code_facts(),
            "machine": machine_facts(),
        }

    def record(self, status: str, manifest: Mapping[str, Any] | None = None) -> None:
        """Append the run's state to the table ``runs``; the latest row holds."""
        facts = manifest or {}
        now = datetime.now(UTC)
        row = {
            "run_id": self.run_id,
            "recorded_at": now,
            "recipe": self.recipe.spec.recipe,
            "substrate": self.substrate.name,
            "substrate_version": self.substrate.version,
            "base_model": self.base_label,
            "started_at": self.started,
            "ended_at": None if status == "running" else now,
            "status": status,
            "seed": self.recipe.spec.training.seed,
            "metrics": json.dumps(facts.get("training", {}), sort_keys=True),
            "manifest": json.dumps(facts, sort_keys=True),
        }
        self.source.append_rows("runs", [row])


def judge_of(serving: ModelVersion | None) -> Mapping[str, str]:
    """Return the hashes of what judged the version that serves; nothing where nobody knows."""
    found: Mapping[str, str] = {} if serving is None else serving.manifest.get("evaluator") or {}
    return found


def _replay(tasks: Mapping[str, HeldOutTasks], found: Assessment) -> dict[str, Any] | None:
    """Return how many tasks were tried in the replayed environment, and how episodes went."""
    if not tasks:
        return None
    return {
        "tasks": {name: len(suite.tasks) for name, suite in tasks.items()},
        "fallen": {name: dict(suite.fallen) for name, suite in tasks.items()},
        "ambiguous_calls": {name: suite.recorded.ambiguous for name, suite in tasks.items()},
        "episodes": {name: asdict(examined) for name, examined in found.examined.items()},
    }


def cost_of(spec: RecipeSpec, fitted: FitMeasurements) -> dict[str, float]:
    """Return what training took: time of devices, and arithmetic by the usual 6 × parameters × tokens.

    Each process trains on a GPU of its own, on whichever machine; on a CPU they share the machine.
    """
    on_gpu = fitted.device.startswith("cuda")
    devices = spec.launch.processes if on_gpu and spec.launch is not None else 1
    return {
        "device_hours": round(devices * fitted.seconds / 3600, 6),
        "flops": 6.0 * fitted.parameters * fitted.tokens,
    }


def write_items(path: Path, items: Sequence[Item]) -> None:
    """Write down which items a model learned from: ids only."""
    columns = {
        "item_id": [item.item_id for item in items],
        "tenant_id": [item.tenant_id for item in items],
        "trajectory_id": [item.trajectory_id for item in items],
        "step_ids": [list(item.step_ids) for item in items],
        "context_step_ids": pa.array(
            [list(item.context_step_ids) for item in items], pa.list_(pa.string())
        ),
    }
    pq.write_table(pa.table(columns), path, compression="zstd")
