"""What judges candidates, as hashes: an update that changes its own judge must be seen to do so.

Of each suite it counts the settings, except the number of tasks, their seed and the time limit. It also counts the
files that they name: programs, modules of reward functions, Safety suites.
"""

from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from train.evaluation.safety import SHIPPED
from train.recipes.settings import EvaluationSettings, RecipeSpec, ReplaySettings
from trajectory.canonical import bytes_hash, content_hash
from trajectory.files import read_file
from trajectory.plugins import REWARDS, plugins

_SIZES = {"tasks", "seed", "timeout_seconds"}
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
            yield _hash_of_main(word)
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
    found = _spec(name)
    return _NOT_THERE if found is None or found.origin is None else _hash(Path(found.origin))


def _hash_of_main(name: str) -> str:
    """Return the hash of what runs where a program is named by its package; nothing for a module."""
    found = _spec(name)
    folders = () if found is None else found.submodule_search_locations or ()
    return next((_hash(Path(folder) / "__main__.py") for folder in folders), _NOT_THERE)


def _spec(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name)
    except (ImportError, ValueError):
        return None


def _hash(file: Path) -> str:
    try:
        return bytes_hash(read_file(file))
    except OSError:
        return _NOT_THERE
