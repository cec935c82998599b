"""What judges candidates, as hashes: an update that changes its own judge must be seen to do so.

Of each suite it counts the settings, except the number of tasks and the time limit. It also counts the files that
they name: programs, modules of reward functions, Safety suites.
"""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from train.evaluation.safety import SHIPPED
from train.recipes.settings import EvaluationSettings, RecipeSpec, ReplaySettings
from trajectory.canonical import bytes_hash, content_hash
from trajectory.files import read_file
from trajectory.plugins import REWARDS, plugins

_SIZES = {"tasks", "seed", "timeout_seconds", "confidence"}
_NOT_THERE = ""


def evaluator_hashes(spec: RecipeSpec) -> dict[str, str]:
    """Return the hash of each suite that a recipe judges candidates by."""
    found = {}
    for name, suite in (("evaluation", spec.evaluation), ("regression", spec.regression)):
        if suite is not None:
            settings = suite.model_dump(mode="json", exclude=_SIZES)
            found[name] = content_hash([settings, [*_files(suite)]])
    if spec.safety is not None:
        file = spec.safety.suite or SHIPPED
        found["safety"] = content_hash([spec.safety.new_tokens, _hash(file)])
    return found


def changed_parts(frozen: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Return the suites of a frozen evaluator that are gone or another one now; more suites are no change."""
    return tuple(sorted(name for name, value in frozen.items() if now.get(name) != value))


def _files(suite: EvaluationSettings) -> Iterator[str]:
    """Yield the hashes of the files that a suite names."""
    replay = suite.replay or ReplaySettings()
    command = suite.command or replay.verifier or ()
    for at, word in enumerate(command):
        if at and command[at - 1] == "-m":
            yield _module(word)
        elif (at or "/" in word) and Path(word).is_file():
            yield _hash(Path(word))
    for reference in (replay.reward, replay.gold):
        if reference is not None:
            yield _module(_module_of(reference))


def _module_of(reference: str) -> str:
    """Return the module of a reward function; empty for a plugin that is not there."""
    module, colon, _ = reference.partition(":")
    if colon:
        return module
    return next((one.entry.module for one in plugins(REWARDS) if one.name == reference), "")


def _module(name: str) -> str:
    """Return the hash of a module's file."""
    try:
        found = find_spec(name)
    except (ImportError, ValueError):
        return _NOT_THERE
    if found is None or found.origin is None:
        return _NOT_THERE
    return _hash(Path(found.origin))


def _hash(file: Path) -> str:
    try:
        return bytes_hash(read_file(file))
    except OSError:
        return _NOT_THERE
