"""Everything that is measured of a trained model before the gate judges it."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from train.evaluation.canaries import CanaryReport, probe
from train.evaluation.divergence import Divergence, divergence_of
from train.evaluation.evaluate import Comparison, TaskResult, compare, evaluate
from train.evaluation.evaluator_identity import changed_parts, evaluator_hashes
from train.evaluation.examine import EpisodeOutcomes, examine
from train.evaluation.gate import GateVerdict, judge, judge_reward_model
from train.evaluation.held_out import HeldOutTasks
from train.evaluation.reward_audit import RewardAudit
from train.evaluation.reward_models import Agreement, Pair, agreement, load_reward_model
from train.evaluation.safety import SafetyComparison, compare_safety
from train.evaluation.win_rate import Regression, Wins, regression_of, wins_of
from train.recipes import recipe_module
from train.recipes.base import Rows, Selection, held_out_side
from train.recipes.settings import EvaluationSettings, RecipeSpec
from train.runs.hardware import best_device
from train.runs.offline import quiet_libraries
from train.runs.rows import TrainingRow
from train.substrate.source import Progress
from train.types import ScoredItem

_CONFIDENCE = 0.95

type RowMaker = Callable[[str, Selection, Any], Rows]
"""Makes rows by a recipe's name, of a selection, with a tokenizer."""


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model folder and its name."""

    label: str
    path: Path


@dataclass(frozen=True, slots=True)
class Assessment:
    """Measurements of a trained model, and the gate's verdict."""

    verdict: GateVerdict
    comparison: Comparison | None = None
    """With its base; None when the recipe names no evaluator."""
    wins: Wins | None = None
    """Against the model that serves."""
    regression: Regression | None = None
    divergence: Divergence | None = None
    """From its base; None when nothing is held out."""
    canaries: CanaryReport | None = None
    safety: SafetyComparison | None = None
    """With its base; None when the recipe names no suite."""
    rewards: RewardAudit | None = None
    evaluator: Mapping[str, str] = field(default_factory=dict)
    """Hashes of what judged it."""
    agreement: Agreement | None = None
    """Of a reward model: how often it prefers the rewarded attempt of a held-out task."""
    examined: Mapping[str, EpisodeOutcomes] = field(default_factory=dict)
    """How episodes in the replayed environment went, by the name of their report: base, candidate …"""


@dataclass(frozen=True, slots=True)
class Assessor:
    """Measures candidates of one run."""

    spec: RecipeSpec
    base: NamedModel
    current: NamedModel
    """The model that serves; the base where none does."""
    items: tuple[ScoredItem, ...]
    """Of the substrate; its held-out ones are measured on."""
    make_rows: RowMaker
    tasks: Mapping[str, HeldOutTasks]
    """What ``evaluation`` and ``regression`` try in the replayed environment, if they do."""
    look: int
    """The how-manieth candidate this is since one passed its gate or what serves changed."""
    reports: Path
    progress: Progress
    rewards: RewardAudit
    """The winners that the run learns from."""
    evaluator: Mapping[str, str]
    """Hashes of what judges, as they were before training began."""
    frozen: Mapping[str, str]
    """Hashes of what judged the model that serves."""
    examined: dict[str, EpisodeOutcomes] = field(default_factory=dict)

    def assess(self, model: Path) -> Assessment:
        """Measure a model and judge it."""
        self.progress("evaluate", 0, None)
        if recipe_module(self.spec.recipe).makes == "reward_model":
            agreed = self._agreement(model)
            return Assessment(judge_reward_model(self.spec.gate, agreed), agreement=agreed)
        comparison = wins = regression = canaries = None
        if self.spec.evaluation is not None:
            comparison, wins = self._compared(self.spec.evaluation, model)
        if self.spec.regression is not None:
            regression = self._regression(self.spec.regression, model)
        divergence = self._divergence(model)
        if self.spec.canaries is not None:
            canaries = probe(model, self.spec.canaries)
        safety = None
        if self.spec.safety is not None:
            safety = compare_safety(self.spec.safety, self.base.path, model)
        now = evaluator_hashes(self.spec)
        changed = {*changed_parts(self.frozen, self.evaluator), *changed_parts(self.evaluator, now)}
        verdict = judge(
            self.spec.gate,
            comparison,
            canaries,
            wins=wins,
            regression=regression,
            divergence=divergence,
            safety=safety,
            rewards=self.rewards,
            changed=sorted(changed),
        )
        return Assessment(
            verdict,
            comparison,
            wins,
            regression,
            divergence,
            canaries,
            safety,
            self.rewards,
            self.evaluator,
            examined=dict(self.examined),
        )

    def _compared(self, settings: EvaluationSettings, model: Path) -> tuple[Comparison, Wins]:
        base = self._tried("evaluation", settings, self.base.path, "base")
        candidate = self._tried("evaluation", settings, model, "candidate")
        current = base
        if self.current.label != self.base.label:
            current = self._tried("evaluation", settings, self.current.path, "current")
            compare(current, candidate, settings)  # the same tasks, or it is refused
        wins = wins_of(
            current,
            candidate,
            against=self.current.label,
            confidence=settings.confidence,
            look=self.look,
        )
        return compare(base, candidate, settings, look=self.look), wins

    def _regression(self, settings: EvaluationSettings, model: Path) -> Regression:
        current = self._tried("regression", settings, self.current.path, "regression-current")
        candidate = self._tried("regression", settings, model, "regression-candidate")
        compare(current, candidate, settings)
        return regression_of(current, candidate, confidence=settings.confidence)

    def _tried(
        self, suite: str, settings: EvaluationSettings, model: Path, name: str
    ) -> list[TaskResult]:
        report = self.reports / f"{name}.jsonl"
        if settings.replay is None:
            return evaluate(settings, model, report=report, progress=self.progress)
        with quiet_libraries(self.reports / "scratch"):
            results, self.examined[name] = examine(
                settings, self.tasks[suite], model, report=report, progress=self.progress
            )
        return results

    def _divergence(self, model: Path) -> Divergence | None:
        from train.model_folder import load_tokenizer

        held_out = held_out_side(self.items)
        if not held_out:
            return None
        selection = Selection(units=tuple((entry,) for entry in held_out), fallen={})
        columns = self.make_rows("sft", selection, load_tokenizer(model)).columns
        rows = [
            TrainingRow(ids, labels)
            for ids, labels in zip(columns["input_ids"], columns["labels"], strict=True)
        ]
        return divergence_of(model, self.base.path, rows, confidence=_CONFIDENCE)

    def _agreement(self, model: Path) -> Agreement | None:
        """Measure a reward model on pairs of held-out tasks; None when there are none."""
        name = self.spec.recipe
        selection = recipe_module(name).select(held_out_side(self.items), self.spec)
        scorer, tokenizer = load_reward_model(model)
        scorer = scorer.to(best_device())
        rows = self.make_rows(name, selection, tokenizer)
        unit_of = {
            entry.item.item_id: at for at, unit in enumerate(selection.units) for entry in unit
        }
        tasks: dict[int, list[Pair]] = defaultdict(list)
        ids = zip(rows.columns["chosen_ids"], rows.columns["rejected_ids"], strict=True)
        for named, pair in zip(rows.item_ids, ids, strict=True):
            tasks[unit_of[named.split()[0]]].append(Pair(*pair))
        if not tasks:
            return None
        pairs = [*tasks.values()]
        return agreement(scorer, pairs, confidence=_CONFIDENCE, look=self.look)
