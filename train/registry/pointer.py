"""The pointer of a model: which version serves, which are on trial beside it, and what changed when.

``models/<name>/live.json`` is replaced as a whole, so whoever reads it sees one state;
``models/<name>/history.jsonl`` tells who changed it, when and why.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError
from trajectory.files import READABLE, append_line, read_file, read_json_lines, replacing

type Trial = Literal["canary", "shadow"]
"""Beside what serves: a canary answers a share of the sessions, a shadow gets copies of calls."""

TRIALS: tuple[Trial, ...] = ("canary", "shadow")
_SERVING = ("adopt", "promote", "rollback")


@dataclass(frozen=True, slots=True)
class Pointer:
    """The versions of one model that serve."""

    version: str
    """Empty where nothing serves, and a first version is on trial against that."""
    since: str
    previous: str | None
    """What a rollback lets serve."""
    trials: Mapping[str, str] = field(default_factory=dict)
    """Version by trial."""
    share: float | None = None
    """Share of the sessions that the canary answers; None for that of the routes."""

    def status_of(self, version: str) -> str | None:
        """Return what a version does: live, canary or shadow; None when it does nothing."""
        if version == self.version:
            return "live"
        return next((trial for trial in TRIALS if self.trials.get(trial) == version), None)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One change of what serves or is on trial."""

    at: str
    action: str
    """adopt | promote | rollback | try_canary | try_shadow | end_canary | end_shadow"""
    version: str
    previous: str | None
    """What served before, or was on the same trial."""
    actor: str
    reason: str | None

    @property
    def served(self) -> bool:
        """Whether the version serves everybody since then."""
        return self.action in _SERVING


def read_pointer(home: Path) -> Pointer | None:
    """Return the pointer of a model's folder; None when nothing serves.

    Raises:
        ConfigurationError: the file holds something else.
    """
    path = home / "live.json"
    try:
        return _read(json.loads(read_file(path)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ConfigurationError(
            f"{path}: cannot be read as what serves ({type(error).__name__}); restore it, or remove "
            "it and promote a version (history.jsonl beside it names the last one)"
        ) from None


def _read(value: Any) -> Pointer:
    found = Pointer(
        value["version"],
        value.get("since") or "",
        value.get("previous"),
        dict(value.get("trials") or {}),
        None if value.get("share") is None else float(value["share"]),
    )
    names = [found.version, found.since, found.previous or "", *found.trials.values()]
    if not all(isinstance(name, str) for name in names):
        raise TypeError("names are texts")
    return found


def write_pointer(home: Path, pointer: Pointer, entry: HistoryEntry) -> None:
    """Move the pointer and write down who did; on a full disk neither happens."""
    value = {**asdict(pointer), "name": home.name}
    with replacing(home / "live.json", READABLE) as file:
        file.write(canonical_json(value))
        file.flush()
        append_line(home / "history.jsonl", json.dumps(asdict(entry), sort_keys=True), READABLE)


def read_history(home: Path) -> list[HistoryEntry]:
    """Return every change, oldest first; a line cut off by a crash is left out."""
    found = []
    for entry in read_json_lines(home / "history.jsonl"):
        with suppress(TypeError):
            found.append(HistoryEntry(**entry))
    return found


def taken_out(history: Iterable[HistoryEntry]) -> set[str]:
    """Return what a rollback or the end of its trial as canary took out, and nothing has put to use since."""
    out: set[str] = set()
    for entry in history:
        if entry.action == "rollback" and entry.previous is not None:
            out.add(entry.previous)
        if entry.action == "end_canary":
            out.add(entry.version)
        if entry.served or entry.action == "try_canary":  # a shadow answers nobody
            out.discard(entry.version)
    return out
