"""Folders of training runs: who holds one, and what must not stay in those that nobody holds.

While a run works, its folder holds rows and episodes in clear. It deletes them itself; a killed
one cannot, so whoever comes next does it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any

from train.runs.order import MANIFEST
from train.substrate.source import LearningSource
from trajectory.errors import ConfigurationError
from trajectory.files import delete_lastingly, locked, make_folders

_LOCK = "lock"
_WORDS = ("scratch", "evaluation/scratch", "evaluation/*.episodes", "evaluation/*.verdict")
"""Where conversations stand while a run works."""
_CHECKPOINTS = ("checkpoints",)
_LEARNED = (*_CHECKPOINTS, "model", "*.words", "evaluation/*.words")
"""What a run that ended early has learned so far, and what programs said that failed in it."""


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the folder of a run, made when there is none, for as long as the run works.

    Raises:
        ConfigurationError: another process works in it.
    """
    make_folders(folder)
    with locked(folder / _LOCK, wait=False) as lock:
        if lock is None:
            raise ConfigurationError(f"run {folder.name} is under way in another process")
        yield


@contextmanager
def conversations_folder(runs: Path) -> Iterator[Path]:
    """Give a folder for what is said in work that is no run; it goes with the work, whose kill others clean up."""
    folder = runs / f"work-{token_hex(6)}"
    with run_lock(folder):
        try:
            place = folder / "scratch"
            place.mkdir()
            yield place
        finally:
            delete_lastingly([folder])


def delete_conversations(runs: Path) -> None:
    """Delete what killed runs left of what was said; it needs no lake."""
    for folder in _folders(runs):
        if _found(folder, _WORDS):
            with locked(folder / _LOCK, wait=False) as lock:
                if lock is not None:
                    _delete(folder, _WORDS)


def delete_learned(folder: Path) -> None:
    """Delete what a run learned, and what was said while it did; who calls holds the run's folder."""
    _delete(folder, _WORDS + _LEARNED)


def sweep(source: LearningSource, runs: Path) -> None:
    """Delete what killed runs left, and note that they were interrupted.

    What a run learned goes too when its substrate is stale: it may not be resumed. Checkpoints of a run that has
    ended go as well.
    """
    delete_conversations(runs)  # first: it also happens where the lake cannot be read
    states = {row["run_id"]: row for row in _states(source)}
    for folder in _folders(runs):
        state = states.get(folder.name, {})
        learned = _found(folder, _useless(folder, state))
        if learned or state.get("status") == "running":
            with locked(folder / _LOCK, wait=False) as lock:
                if lock is not None:
                    _sweep(source, folder)


def _sweep(source: LearningSource, folder: Path) -> None:
    state = next((row for row in _states(source) if row["run_id"] == folder.name), {})
    _delete(folder, _WORDS + _useless(folder, state))
    if state.get("status") == "running":
        now = datetime.now(UTC)
        row = {name: value for name, value in state.items() if name != "stale"}
        ended = {"status": "interrupted", "recorded_at": now, "ended_at": now}
        source.append_rows("runs", [row | ended])


def _useless(folder: Path, state: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what of a run may not be resumed, or what nobody resumes because it has ended."""
    if state.get("stale"):
        return _LEARNED
    return _CHECKPOINTS if (folder / MANIFEST).is_file() else ()


def _folders(runs: Path) -> list[Path]:
    return sorted(path for path in runs.glob("*") if path.is_dir())


def _found(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    return [path for pattern in patterns for path in folder.glob(pattern)]


def _delete(folder: Path, patterns: tuple[str, ...]) -> None:
    delete_lastingly(_found(folder, patterns))


def _states(source: LearningSource) -> list[dict[str, Any]]:
    """Return the present state of each run, and whether its substrate is stale."""
    found: list[dict[str, Any]] = source.query(
        "SELECT r.*, coalesce(s.stale, false) AS stale FROM runs_latest r LEFT JOIN "
        "substrates_latest s ON s.name = r.substrate AND s.version = r.substrate_version"
    ).to_pylist()
    return found
