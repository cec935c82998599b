"""Against what serves: how often a candidate wins, and what of a suite it breaks."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean as mean
from typing import NamedTuple

from train.evaluation.evaluate import TaskResult
from train.evaluation.intervals import Interval, confidence_at_look, wilson

_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class Wins:
    """A candidate and the model that serves, task by task."""

    against: str
    """``name@version`` of the model that served, or what the candidate was trained from."""
    wins: int
    """Tasks that the candidate solves more often or, where as often, with a higher mean reward."""
    ties: int
    losses: int
    rate: Interval
    """Share of wins among the tasks that did not end alike."""
    rate_at_look: Interval
    """The same at the confidence that is left for this candidate's look, by which the gate judges."""


@dataclass(frozen=True, slots=True)
class Regression:
    """A suite that the model that serves has mostly mastered."""

    tasks: int
    mastered: int
    """Tasks that the model that serves solves, in more than half of its attempts."""
    broken: int
    """Those of them that the candidate does not."""
    share: Interval
    """Broken among mastered."""


def wins_of(
    current: Sequence[TaskResult],
    candidate: Sequence[TaskResult],
    *,
    against: str,
    confidence: float,
    look: int = 1,
) -> Wins:
    """Count wins on the same tasks, attempts at one task taken together.

    Args:
        current: what the one did.
        candidate: what the other did.
        against: name of the one.
        confidence: such as 0.95.
        look: the how-manieth candidate this is since one passed its gate or what serves changed.
    """
    before, after = _means(current), _means(candidate)
    gains = [_gain(before[task], after[task]) for task in before]
    wins = sum(gain > _EQUAL for gain in gains)
    losses = sum(gain < -_EQUAL for gain in gains)
    ties = len(gains) - wins - losses
    rate, rate_at_look = (
        wilson(wins, wins + losses, each)
        for each in (confidence, confidence_at_look(confidence, look))
    )
    return Wins(against, wins, ties, losses, rate, rate_at_look)


def regression_of(
    current: Sequence[TaskResult], candidate: Sequence[TaskResult], *, confidence: float
) -> Regression:
    """Count what the candidate breaks of what the model that serves can do."""
    before, after = _means(current), _means(candidate)
    mastered = [task for task, mean in before.items() if mean.success > 0.5]
    broken = sum(after[task].success <= 0.5 for task in mastered)
    return Regression(len(before), len(mastered), broken, wilson(broken, len(mastered), confidence))


class _Mean(NamedTuple):
    """Result of a model at one task, over its attempts."""

    success: float
    reward: float


def _gain(before: _Mean, after: _Mean) -> float:
    gain = after.success - before.success
    return gain if abs(gain) > _EQUAL else after.reward - before.reward


def _means(results: Sequence[TaskResult]) -> dict[str, _Mean]:
    attempts: dict[str, list[TaskResult]] = {}
    for result in results:
        attempts.setdefault(result.task_id, []).append(result)
    return {
        task: _Mean(mean(one.success for one in tried), mean(one.reward for one in tried))
        for task, tried in sorted(attempts.items())
    }
