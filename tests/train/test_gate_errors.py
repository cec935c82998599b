"""How often the gate errs, night after night, at the sizes that are shipped."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from train.evaluation.evaluate import TaskResult, compare
from train.evaluation.gate import judge, judge_reward_model
from train.evaluation.intervals import confidence_at_look, paired_gain, wilson
from train.evaluation.reward_models import Agreement
from train.recipes.settings import EvaluationSettings, GateSettings
from train.registry.versions import ModelRegistry

SHIPPED = EvaluationSettings(command=("none",))
NIGHTS = 30
HISTORIES = 2000


@dataclass(frozen=True)
class World:
    """Held-out tasks, some harder than others; how often a model solves one depends on it."""

    rates: tuple[float, float]
    """Of base and candidate."""
    shared: float = 0.5
    """Share of the tasks that both solve or both do not."""
    fixed: bool = False
    """Whether the base is tried once, so that all nights look at the same outcomes."""

    def nights(self, draw: np.random.Generator, tasks: int) -> Iterator[tuple[Any, Any]]:
        """Yield what base and candidate solved, of each history one, night after night."""
        base = None
        for _ in range(NIGHTS):
            if base is None or not self.fixed:
                own = draw.random((HISTORIES, tasks))
                base = own < self.rates[0]
            alike = draw.random((HISTORIES, tasks)) < self.shared
            luck = np.where(alike, own, draw.random((HISTORIES, tasks)))
            yield base, luck < self.rates[1]


def passes(world: World, *, tasks: int = SHIPPED.tasks, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return in which nights of each history the gain passed, every night as a further look."""
    found = np.zeros((HISTORIES, NIGHTS), dtype=bool)
    nights = world.nights(np.random.default_rng(seed), tasks)
    for night, (base, candidate) in enumerate(nights):
        confidence = confidence_at_look(SHIPPED.confidence, night + 1)
        won, lost = (pair.sum(axis=1).tolist() for pair in (~base & candidate, base & ~candidate))
        for history, (more, less) in enumerate(zip(won, lost, strict=True)):
            gains = [1.0] * more + [-1.0] * less + [0.0] * (tasks - more - less)
            found[history, night] = paired_gain(gains, confidence=confidence, step=1.0).low > 0
    return found


def attempts_at(draw: np.random.Generator, rates: Any, attempts: int) -> list[TaskResult]:
    """Let a model try tasks that it solves at such rates."""
    solved = draw.random((len(rates), attempts)) < np.asarray(rates)[:, None]
    return [
        TaskResult(f"{task}", attempt, bool(good), float(good))
        for task, row in enumerate(solved)
        for attempt, good in enumerate(row)
    ]


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("tasks", [5, 8, 20])
def test_of_few_tasks_an_equal_model_passes_as_seldom_as_of_many(tasks: int, attempts: int) -> None:
    draw = np.random.default_rng(tasks)
    passed = 0
    for _ in range(2000):
        rates = draw.choice([0.3, 0.5, 0.7], tasks)
        base, candidate = (attempts_at(draw, rates, attempts) for _ in range(2))
        passed += judge(GateSettings(), compare(base, candidate, SHIPPED)).passed
    assert passed / 2000 <= 0.034, "0.025, and the error of 2000 candidates"


@pytest.mark.slow
@pytest.mark.parametrize(
    "world",
    [World((0.6, 0.6)), World((0.2, 0.2)), World((0.6, 0.6), fixed=True), World((0.6, 0.58))],
    ids=["alike", "mostly failing", "the same tasks each night", "worse"],
)
def test_thirty_nights_of_no_better_models_pass_in_one_of_twenty_histories(world: World) -> None:
    once = passes(world).any(axis=1).mean()
    assert once <= 0.06, "0.05, and the error of 2000 histories"


@pytest.mark.slow
def test_a_model_that_is_ten_points_better_passes_soon() -> None:
    found = passes(World((0.6, 0.7)))
    first, after_ten = found[:, 0].mean(), found[:, 10].mean()
    assert (first > 0.95, after_ten > 0.6) == (True, True), (first, after_ten)
    assert found[:, 10:14].any(axis=1).mean() > 0.95, "nor does it wait long after ten in vain"


def results(solved: Any) -> list[TaskResult]:
    return [
        TaskResult(str(number), 0, bool(good), float(good), f"slice-{number % 6}")
        for number, good in enumerate(solved)
    ]


@pytest.mark.slow
def test_slices_refuse_what_they_show_and_not_what_chance_makes() -> None:
    draw = np.random.default_rng(1)
    settings = SHIPPED

    def refused(gains: list[float]) -> float:
        """Return how often a slice refuses a candidate that gains so much in each."""
        count = 0
        for _ in range(100):
            slices = np.arange(settings.tasks) % 6
            own = draw.random(settings.tasks)
            luck = np.where(draw.random(settings.tasks) < 0.5, own, draw.random(settings.tasks))
            after = luck < 0.6 + np.asarray(gains)[slices]
            found = compare(results(own < 0.6), results(after), settings)
            rules = {
                finding.rule.partition(":")[0] for finding in judge(GateSettings(), found).failed
            }
            count += "largest_slice_loss" in rules
        return count / 100

    assert refused([0.1] * 6) <= 0.01
    assert refused([0.0] * 6) <= 0.05
    assert refused([0.2] * 5 + [-0.35]) >= 0.95


@pytest.mark.parametrize(
    ("makes", "rule"), [("policy", "minimum_gain"), ("reward_model", "minimum_agreement")]
)
def test_the_registry_counts_looks_until_one_passes(tmp_path: Path, makes: str, rule: str) -> None:
    registry = ModelRegistry(tmp_path / "models")

    def register(number: int, *, passed: bool, measured: float | None = -0.1) -> None:
        folder = tmp_path / f"trained-{number}"
        folder.mkdir()
        findings = [{"rule": rule, "passed": passed, "measured": measured}]
        facts = {"origin": "adopted", "makes": makes, "gate": {"findings": findings}}
        registry.register("shop", folder, facts, passed=passed)

    looks = [registry.look("shop")]
    for number, measured in enumerate((-0.1, -0.2, None)):
        register(number, passed=False, measured=measured)
        looks.append(registry.look("shop"))
    register(3, passed=True)
    assert [*looks, registry.look("shop")] == [1, 2, 3, 3, 1]


def test_the_registry_counts_looks_until_one_passes_or_another_serves(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")

    def register(number: int, *, passed: bool, evaluated: bool = True) -> str:
        folder = tmp_path / f"trained-{number}"
        folder.mkdir()
        rule = "minimum_gain" if evaluated else "evaluated"
        findings = [{"rule": rule, "passed": passed, "measured": -0.1 if evaluated else None}]
        facts = {"origin": "adopted", "gate": {"findings": findings}}
        return registry.register("shop", folder, facts, passed=passed).version

    looks = [registry.look("shop")]
    first = register(1, passed=False)
    looks.append(registry.look("shop"))
    register(2, passed=False, evaluated=False)
    looks.append(registry.look("shop"))
    register(3, passed=False)
    looks.append(registry.look("shop"))
    register(4, passed=True)
    looks.append(registry.look("shop"))
    register(5, passed=False)
    looks.append(registry.look("shop"))
    registry.promote("shop", first, actor="ann", override="a trial")
    looks.append(registry.look("shop"))
    assert looks == [1, 2, 2, 3, 1, 2, 1]


def test_two_candidates_that_are_examined_at_once_are_two_looks(tmp_path: Path) -> None:
    looks: list[int] = []
    both = Barrier(2)

    def examine(number: int) -> None:
        registry = ModelRegistry(tmp_path / "models")
        folder = tmp_path / f"trained-{number}"
        folder.mkdir()
        findings = [{"rule": "minimum_gain", "passed": False, "measured": -0.1}]
        facts = {"origin": "adopted", "gate": {"findings": findings}}
        both.wait()
        with registry.examining("shop"):
            looks.append(registry.look("shop"))
            registry.register("shop", folder, facts, passed=False)

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(examine, range(2))] == [None, None]
    assert looks == [1, 2]


def test_a_later_look_needs_a_clearer_gain() -> None:
    base = results([n % 10 < 4 for n in range(400)])
    better = results([n % 10 in (0, 1, 2, 5, 6) for n in range(400)])
    found = [compare(base, better, SHIPPED, look=look) for look in (1, 2, 30)]
    assert found[0].gain_at_look == found[0].gain
    assert found[0].gain_at_look.low > found[1].gain_at_look.low > found[2].gain_at_look.low
    assert len({comparison.gain for comparison in found}) == 1
    assert [judge(GateSettings(), one).findings[0].passed for one in found] == [True, True, False]


def test_several_attempts_at_a_task_are_judged_by_the_look_too() -> None:
    def attempts(solved: list[bool]) -> list[TaskResult]:
        return [TaskResult(str(n // 2), n % 2, good, float(good)) for n, good in enumerate(solved)]

    base = attempts([n % 4 == 0 for n in range(80)])
    better = attempts([n % 4 in (0, 3) for n in range(80)])
    first, later = (compare(base, better, SHIPPED, look=look) for look in (1, 9))
    assert first.gain.method == "paired-t"
    assert first.gain_at_look == first.gain
    assert later.gain_at_look.low < later.gain.low


HELD_OUT = 60


@pytest.mark.slow
def test_thirty_nights_of_reward_models_that_guess_pass_in_one_of_twenty_histories() -> None:
    draw = np.random.default_rng(5)
    passed = 0
    for _ in range(1000):
        for night in range(NIGHTS):
            right = int(draw.binomial(HELD_OUT, 0.5))
            confidence = confidence_at_look(0.95, night + 1)
            at_look = wilson(right, HELD_OUT, confidence)
            agreed = Agreement(HELD_OUT, wilson(right, HELD_OUT, 0.95), night + 1, at_look)
            if judge_reward_model(GateSettings(), agreed).passed:
                passed += 1
                break
    assert passed / 1000 <= 0.07, "0.05, and the error of 1000 histories"
