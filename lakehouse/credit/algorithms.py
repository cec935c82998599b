"""The algorithms: a name, the paper, the parameters and one SQL text each.

An algorithm may have nothing to compare with: one attempt, no variance, an observation that nobody else met. The
difference is then 0, which says nothing about better or worse.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lakehouse.credit.sql import (
    EMA_BASELINE,
    GIGPO,
    GROUPED_GAE,
    GRPO,
    HGPO,
    HINDSIGHT,
    LEAVE_ONE_OUT,
    PROCESS_GRPO,
    RETURN_TO_GO,
)
from trajectory.errors import ConfigurationError

type Value = float | int | str


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number or word that an algorithm takes."""

    name: str
    default: Value
    meaning: str
    lowest: float | None = None
    highest: float | None = None
    words: tuple[str, ...] = ()
    """What a word may be."""

    def check(self, value: Value) -> Value:
        """Return ``value`` in the default's type.

        Raises:
            ConfigurationError: it is no such value.
        """
        if self.words:
            if value in self.words:
                return value
            raise ConfigurationError(
                f"{self.name}: {value!r} is not one of {', '.join(self.words)}"
            )
        try:
            number = int(value) if isinstance(self.default, int) else float(value)
        except ValueError:
            raise ConfigurationError(f"{self.name}: {value!r} is no number") from None
        low, high = self.lowest, self.highest
        if (low is not None and number < low) or (high is not None and number > high):
            raise ConfigurationError(f"{self.name}: {number} is not between {low} and {high}")
        return number


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way of giving credit."""

    name: str
    version: str
    """Raised when the same input would give another result."""
    source: str
    """The paper whose equations the SQL follows."""
    comment: str
    parameters: tuple[Parameter, ...]
    sql: str
    """CTEs and a SELECT over ``attempts`` and ``decided`` (see ``lakehouse.credit.sql``)."""

    def settle(self, given: Mapping[str, Value]) -> dict[str, Value]:
        """Return all parameters, the given ones checked and the rest at their defaults.

        Raises:
            ConfigurationError: a parameter is unknown or out of range.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in given:
            if name not in known:
                raise ConfigurationError(
                    f"{self.name} has no parameter {name!r}; it takes: {', '.join(known) or 'none'}"
                )
        return {
            name: parameter.check(given.get(name, parameter.default))
            for name, parameter in known.items()
        }


_GAMMA = Parameter("gamma", 1.0, "discount per step", 1e-3, 1.0)
_SCALE = Parameter(
    "scale", "std", "divide by the group's standard deviation or not", words=("std", "none")
)

_ALL = (
    Algorithm(
        "return_to_go",
        "1",
        "Sutton & Barto, Reinforcement Learning, 2nd ed., 3.3",
        "The discounted reward that was still to come: no baseline, needs no other attempt",
        (_GAMMA,),
        RETURN_TO_GO,
    ),
    Algorithm(
        "grpo",
        "1",
        "DeepSeekMath, arXiv 2402.03300; scale=none is Dr. GRPO, arXiv 2503.20783",
        "The attempt's reward against the mean of all attempts at its task, alike for its steps",
        (_SCALE,),
        GRPO,
    ),
    Algorithm(
        "leave_one_out",
        "1",
        "RLOO, arXiv 2402.14740",
        "The attempt's reward against the mean of the other attempts at its task",
        (),
        LEAVE_ONE_OUT,
    ),
    Algorithm(
        "ema_baseline",
        "1",
        "Williams 1992, reinforcement baseline; debiased as in Adam, arXiv 1412.6980",
        "The attempt's reward against the fading mean of the attempts before it: works with one "
        "attempt per task",
        (
            Parameter("decay", 0.9, "how much of the mean stays per attempt", 0.0, 1.0),
            Parameter("by", "app", "whose attempts share a mean", words=("tenant", "app", "model", "task")),
        ),
        EMA_BASELINE,
    ),
    Algorithm(
        "gigpo",
        "1",
        "Group-in-Group Policy Optimization, arXiv 2505.10978",
        "GRPO plus the step's return against other steps at the task with the same observation",
        (
            Parameter("gamma", 0.95, "discount per step", 1e-3, 1.0),
            Parameter("weight", 1.0, "of the step's part", 0.0, 100.0),
            _SCALE,
        ),
        GIGPO,
    ),
    Algorithm(
        "hgpo",
        "1",
        "Hierarchy-of-Groups Policy Optimization, arXiv 2602.22817",
        "The step's return against steps with the same observation and 0 to K same ones before it, "
        "levels weighted by (k+1)^alpha",
        (
            Parameter("gamma", 0.95, "discount per step", 1e-3, 1.0),
            Parameter("history", 2, "K, observations before the step", 0, 64),
            Parameter("alpha", 1.0, "how much more a longer common history counts", 0.0, 16.0),
            _SCALE,
        ),
        HGPO,
    ),
    Algorithm(
        "grouped_gae",
        "1",
        "GAE, arXiv 1506.02438, with the group's mean return of an observation as its value "
        "(the idea of GAGPO, arXiv 2605.13217)",
        "Generalised advantage estimation without a critic",
        (
            Parameter("gamma", 0.95, "discount per step", 1e-3, 1.0),
            Parameter("trace", 0.95, "lambda: 0 looks one step ahead, 1 to the end", 0.0, 1.0),
            Parameter(
                "scale", "none", "standardise over the task's steps or not", words=("std", "none")
            ),
        ),
        GROUPED_GAE,
    ),
    Algorithm(
        "process_grpo",
        "1",
        "DeepSeekMath, arXiv 2402.03300, 4.1.3 (process supervision); scale=none as in arXiv 2503.20783",
        "What a judge of steps gave each step, against all steps of the task; a step's credit is the "
        "sum from there on. Give the judge's signals alone as weights",
        (_SCALE,),
        PROCESS_GRPO,
    ),
    Algorithm(
        "hindsight",
        "1",
        "Hindsight Credit Assignment, arXiv 1912.02503, return-conditional, with counts for both "
        "distributions",
        "The return, as far as the action was likelier in hindsight of its outcome than before: "
        "(1 - pi(a|x) / h(a|x,passed)) * return",
        (
            _GAMMA,
            Parameter("passing", 0.5, "from which reward on an attempt passed"),
        ),
        HINDSIGHT,
    ),
)  # fmt: skip

ALGORITHMS: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in _ALL}


def algorithm_named(name: str) -> Algorithm:
    """Return an algorithm.

    Raises:
        ConfigurationError: there is none of this name.
    """
    if name not in ALGORITHMS:
        raise ConfigurationError(
            f"no credit algorithm {name!r}; there are: {', '.join(ALGORITHMS)}"
        )
    return ALGORITHMS[name]
