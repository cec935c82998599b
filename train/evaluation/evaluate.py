"""Evaluates models with the user's own command and compares two on the same tasks.

The command is called as ``… --model PATH --report FILE --tasks N --seed S`` and writes one JSON
object per line: ``{"task_id", "attempt", "success", "reward", "slice"?, "unknown"?, "gold"?}``.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from train.errors import EvaluationError
from train.evaluation.intervals import Interval, confidence_at_look, paired_gain, wilson
from train.recipes.settings import EvaluationSettings
from train.substrate.source import Progress, silent
from trajectory.child_process import ChildProcess, environment_of_others
from trajectory.files import read_file, replace_file

WORDS = ".words"
"""How files end that hold the last words of a program that failed."""
_TAIL = 4096
_LARGEST_REWARD = 1e100
"""Sums of larger ones would be no numbers any more."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of one attempt of a model at one task."""

    task_id: str
    attempt: int
    success: bool
    reward: float
    slice: str | None = None
    """A part of the tasks that is judged on its own."""
    unknown: bool = False
    """Nobody knows how it would have ended; it is not a success then."""
    gold: bool | None = None
    """What a judge says that is trusted more than the evaluator; None where nobody asked it."""


@dataclass(frozen=True, slots=True)
class SliceComparison:
    """Base and candidate on some tasks."""

    tasks: int
    base: float
    """Success rate."""
    candidate: float
    gain: Interval
    """Of the success rate, candidate minus base, on the same tasks."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Base and candidate on the same tasks, as a whole and slice by slice."""

    tasks: int
    attempts: int
    """Attempts of each model at all tasks."""
    base: Interval
    candidate: Interval
    gain: Interval
    reward_gain: Interval
    slices: Mapping[str, SliceComparison]
    confidence: float
    look: int
    """The how-manieth candidate this was since one passed its gate or what serves changed."""
    gain_at_look: Interval
    """The gain at the confidence that is left for this look, by which the gate judges."""
    base_unknown: int = 0
    """Attempts of the base with unknown outcome; counted as not solved."""
    candidate_unknown: int = 0
    proxy_gap: Interval | None = None
    """Candidate minus base, of the share of attempts that the evaluator calls solved and gold does not;
    None where no attempt has gold."""


def evaluate(
    settings: EvaluationSettings, model: Path, *, report: Path, progress: Progress = silent
) -> list[TaskResult]:
    """Run the evaluator on a model and return its report.

    Raises:
        EvaluationError: the command failed, took too long, or wrote something unreadable.
    """
    progress("evaluate", 0, settings.tasks)
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    options = ["--model", str(model), "--report", str(report)]
    numbers = ["--tasks", str(settings.tasks), "--seed", str(settings.seed)]
    run_program(
        [*(settings.command or ()), *options, *numbers],
        setting="evaluation.command",
        seconds=settings.timeout_seconds,
        folder=report.parent,
    )
    return read_report(report)


def run_program(command: Sequence[str], *, setting: str, seconds: float, folder: Path) -> None:
    """Run a program of the user's own to its end; what it started ends with it.

    Raises:
        EvaluationError: it cannot be started, took too long, or failed; the text says where its last
            words stand.
    """
    words = folder / f"{setting}{WORDS}"
    words.unlink(missing_ok=True)
    # Its words may hold content: they stay in the run's folder, out of our log and the table of runs.
    with tempfile.TemporaryFile(dir=folder) as errors:
        try:
            with ChildProcess(
                [_program(command[0]), *command[1:]],
                stderr=errors,
                environment=environment_of_others(),
            ) as process:
                code = process.wait(seconds)
        except OSError as error:
            raise EvaluationError(
                f"{setting}: {command[0]!r} cannot be started ({error.strerror})"
            ) from None
        except subprocess.TimeoutExpired:
            raise EvaluationError(
                f"{setting}: the evaluator took longer than {seconds:g} s; "
                "raise evaluation.timeout_seconds or lower evaluation.tasks"
            ) from None
        if code != 0:
            raise EvaluationError(
                f"{setting}: the evaluator ended with code {code}; "
                f"its last words stand in {keep_words(errors, words)}"
            )


def keep_words(said: IO[bytes], path: Path) -> Path:
    """Keep the end of what a program said in a file for its owner alone; return the file."""
    said.seek(0)
    replace_file(path, said.read()[-_TAIL:])
    return path


def _program(name: str) -> str:
    """``python`` means the interpreter that runs us, so that a recipe works in any environment."""
    return sys.executable if name == "python" else name


def read_report(path: Path) -> list[TaskResult]:
    """Read an evaluator's report.

    Raises:
        EvaluationError: naming the line and what is wrong with it.
    """
    try:
        lines = read_file(path).split(b"\n")  # a text may hold other ends of lines
    except OSError:
        raise EvaluationError(f"{path}: the evaluator wrote no report") from None
    results = [_result(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not results:
        raise EvaluationError(f"{path}: the report is empty; the evaluator must try some tasks")
    keys = {(result.task_id, result.attempt) for result in results}
    if len(keys) != len(results):
        raise EvaluationError(f"{path}: a task and attempt stands there twice; number the attempts")
    return results


def _result(path: Path, number: int, line: bytes) -> TaskResult:
    try:
        value = json.loads(line)
        success, unknown = _yes_or_no(value["success"]), _yes_or_no(value.get("unknown", False))
        if unknown and success:
            raise ValueError("what is unknown is no success")
        reward = float(value.get("reward", success))
        if not abs(reward) <= _LARGEST_REWARD:
            raise ValueError("no reward")
        if not isinstance(value["task_id"], str | int) or value["task_id"] == "":
            raise TypeError("no name of a task")
        return TaskResult(
            task_id=str(value["task_id"]),
            attempt=int(value.get("attempt", 0)),
            success=success,
            reward=reward,
            slice=None if value.get("slice") is None else str(value["slice"]),
            unknown=unknown,
            gold=None if value.get("gold") is None else _yes_or_no(value["gold"]),
        )
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise EvaluationError(
            f"{path}:{number}: not a result ({type(error).__name__}); a line is "
            '{"task_id": "…", "attempt": 0, "success": true, "reward": 1.0, "slice": "…"}'
        ) from None


def _yes_or_no(value: Any) -> bool:
    """Take true and false, and 1 and 0; a text says neither, not even "false"."""
    if value in (True, False) and isinstance(value, int):
        return bool(value)
    raise TypeError("neither true nor false")


def compare(
    base: Sequence[TaskResult],
    candidate: Sequence[TaskResult],
    settings: EvaluationSettings,
    *,
    look: int = 1,
) -> Comparison:
    """Compare two models on the same tasks and attempts.

    Args:
        base: what the one did.
        candidate: what the other did.
        settings: the confidence.
        look: the how-manieth candidate this is since one passed its gate or what serves changed.

    Raises:
        EvaluationError: the reports are not about the same tasks.
    """
    base = sorted(base, key=lambda result: (result.task_id, result.attempt))
    candidate = sorted(candidate, key=lambda result: (result.task_id, result.attempt))
    keys = [[(result.task_id, result.attempt) for result in side] for side in (base, candidate)]
    if keys[0] != keys[1]:
        raise EvaluationError(
            "base and candidate were not tried at the same tasks; "
            "the evaluator must choose tasks from --tasks and --seed alone"
        )
    confidence = settings.confidence
    whole = _on(base, candidate, confidence)
    if whole.tasks < 2:
        raise EvaluationError("one task tells nothing; the evaluator must try at least two")
    names = sorted({result.slice for result in base if result.slice is not None})
    slices = {name: _on(*_only(name, base, candidate), confidence) for name in names}
    rewards = [c.reward - b.reward for b, c in zip(base, candidate, strict=True)]
    return Comparison(
        tasks=whole.tasks,
        attempts=len(base),
        base=wilson(whole.base * whole.tasks, whole.tasks, confidence),
        candidate=wilson(whole.candidate * whole.tasks, whole.tasks, confidence),
        gain=whole.gain,
        reward_gain=paired_gain(_by_task(base, rewards), confidence=confidence),
        slices=slices,
        confidence=confidence,
        look=look,
        gain_at_look=_on(base, candidate, confidence_at_look(confidence, look)).gain,
        base_unknown=sum(result.unknown for result in base),
        candidate_unknown=sum(result.unknown for result in candidate),
        proxy_gap=_proxy_gap(base, candidate, confidence),
    )


def _proxy_gap(
    base: Sequence[TaskResult], candidate: Sequence[TaskResult], confidence: float
) -> Interval | None:
    """Compare how often the evaluator is pleased with what gold denies."""
    pairs = [
        [replace(one, success=one.success and not one.gold) for one in pair]
        for pair in zip(base, candidate, strict=True)
        if all(one.gold is not None for one in pair)
    ]
    if not pairs:
        return None
    return _on([b for b, _ in pairs], [c for _, c in pairs], confidence).gain


def _only(
    name: str, base: Sequence[TaskResult], candidate: Sequence[TaskResult]
) -> tuple[list[TaskResult], list[TaskResult]]:
    pairs = [(b, c) for b, c in zip(base, candidate, strict=True) if b.slice == name]
    return [b for b, _ in pairs], [c for _, c in pairs]


def _on(
    base: Sequence[TaskResult], candidate: Sequence[TaskResult], confidence: float
) -> SliceComparison:
    gains = _by_task(
        base, [float(c.success) - b.success for b, c in zip(base, candidate, strict=True)]
    )
    attempts = len(base)
    return SliceComparison(
        tasks=len(gains),
        base=sum(result.success for result in base) / attempts,
        candidate=sum(result.success for result in candidate) / attempts,
        gain=paired_gain(gains, confidence=confidence, step=len(gains) / attempts),
    )


def _by_task(results: Sequence[TaskResult], gains: Sequence[float]) -> list[float]:
    """Return the mean gain of each task: the attempts at one are not independent, so they stay together."""
    tasks: dict[str, list[float]] = {}
    for result, gain in zip(results, gains, strict=True):
        tasks.setdefault(result.task_id, []).append(gain)
    return [sum(each) / len(each) for each in tasks.values()]
