"""Versions in folders: what was registered under a name, each with a manifest that never changes.

``<root>/<name>/<version>/manifest.json`` says what a version is. A version appears whole, under a
number that no version of the name had before. What serves stands beside them (:mod:`train.registry.registry`).
"""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from train.registry.pointer import HistoryEntry, read_history, read_pointer
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError
from trajectory.files import (
    READABLE,
    damaged_file,
    delete_leftovers,
    locked,
    make_folders,
    read_object,
    replace_file,
    sync_files,
    sync_folder,
)

_TORN = "restore it, or remove that version's folder"
_EXAM = "exam.lock"
_INCOMING = ".incoming"
"""The folder of a version that is being made."""


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """One version of something that serves."""

    name: str
    version: str
    path: Path
    """Its folder."""
    status: str
    """candidate | refused (by its gate) | live | canary | shadow | retired"""
    manifest: Mapping[str, Any]

    @property
    def label(self) -> str:
        """``name@version``, as steps and tables name it."""
        return f"{self.name}@{self.version}"


class VersionFolders[V: RegisteredVersion](ABC):
    """The versions below one folder; each kind says what the lake is told of them."""

    kind: ClassVar[str]
    """What is registered, in errors and audit entries."""
    command: ClassVar[str]
    """Lists what there is."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @abstractmethod
    def _made(
        self, name: str, version: str, folder: Path, status: str, manifest: Mapping[str, Any]
    ) -> V:
        """Return a version as its own kind."""

    @abstractmethod
    def _record(
        self, one: V, *, status: str, reason: str | None = None, actor: str | None = None
    ) -> None:
        """Write a version's status into the lake."""

    @abstractmethod
    def _record_removed(self, name: str, version: str, entry: HistoryEntry) -> None:
        """Write into the lake that a version whose folder was removed serves nobody any more."""

    @abstractmethod
    def _recorded(self, name: str) -> Mapping[str, str]:
        """Return the status of each version of a name, as the lake knows it."""

    def names(self) -> list[str]:
        """Return the names of all."""
        if not self._root.is_dir():
            return []
        return sorted(path.name for path in self._root.iterdir() if versions_in(path))

    def versions(self, name: str) -> list[V]:
        """Return the versions of a name, oldest first."""
        folder = self._root / name
        return [self.get(name, version) for version in versions_in(folder)]

    def get(self, name: str, version: str) -> V:
        """Return one version.

        Raises:
            ConfigurationError: there is no such version; the text lists those that exist.
        """
        folder = self._root / _plain(name) / _plain(version)
        try:
            manifest = read_object(folder / "manifest.json", _TORN)
        except OSError:
            known = versions_in(self._root / name) if name in self.names() else []
            raise ConfigurationError(
                f"no version {version!r} of {self.kind} {name!r}; "
                f"there are {', '.join(known) or 'none'} (`{self.command}`)"
            ) from None
        if (manifest.get("name"), manifest.get("version")) != (name, version):
            raise damaged_file(folder / "manifest.json", ValueError(), _TORN)
        status = self._status(name, version, manifest)
        return self._made(name, version, folder, status, manifest)

    def _found(self, name: str, version: str) -> V | None:
        """Return a version; None where its folder was removed."""
        there = (self._root / name / version / "manifest.json").is_file()
        return self.get(name, version) if there else None

    def history(self, name: str) -> list[HistoryEntry]:
        """Return every change of what serves and what is on trial, oldest first."""
        return read_history(self._root / name)

    def _place(
        self,
        name: str,
        facts: Mapping[str, Any],
        fill: Callable[[Path, Mapping[str, Any]], None],
        *,
        taken: Path | None = None,
    ) -> V:
        """Put a new version in its place under the next number; nobody sees it half made.

        Args:
            name: in the registry.
            facts: of its manifest; name, version and time are added.
            fill: called with the folder to make, and with its whole manifest.
            taken: what it takes away from where it was; it is given back where placing fails.
        """
        home = self._root / name
        version = self._next_version(home)
        facts = {
            **facts,
            "name": name,
            "version": version,
            "registered_at": datetime.now(UTC).isoformat(),
        }
        incoming = home / _INCOMING
        if incoming.exists():  # of a process that died here
            shutil.rmtree(incoming)
        try:
            fill(incoming, facts)
            replace_file(incoming / "manifest.json", canonical_json(facts), READABLE)
            sync_files(path for path in incoming.rglob("*") if path.is_file())
            incoming.rename(home / version)
        except Exception:
            if taken is not None and incoming.exists() and not taken.exists():
                shutil.move(incoming, taken)
            raise
        sync_folder(home)
        registered = self.get(name, version)
        self._record(registered, status=registered.status)
        return registered

    def end_killed(self) -> None:
        """End what processes that died had begun: remove what was half made, record what was whole.

        An erasure begins with this: what was half made may hold content, and nothing else finds it.
        """
        for home in sorted(self._root.glob("*")):
            recorded = self._recorded(home.name)
            is_whole = recorded.keys() >= {*versions_in(home)}
            if (home / _INCOMING).exists() or not is_whole or [*home.rglob(".*.tmp")]:
                with self._changing(home.name):
                    shutil.rmtree(home / _INCOMING, ignore_errors=True)
                    for folder in (home, *(home / version for version in versions_in(home))):
                        delete_leftovers(folder)

    def _settle(self, name: str) -> None:
        """Tell the lake what a change could not tell it that was killed or met a full disk."""
        recorded = self._recorded(name)
        for one in self.versions(name):
            if recorded.get(one.version) != one.status:
                moved = [entry for entry in self.history(name) if entry.version == one.version]
                said = moved[-1] if moved else None
                actor, reason = (None, None) if said is None else (said.actor, said.reason)
                self._record(one, status=one.status, reason=reason, actor=actor)

    @contextmanager
    def examining(self, name: str) -> Iterator[None]:
        """Hold an exam of a candidate while no other of the same name is held, until it is noted.

        Else two that are examined at once would both be the first look at the same tasks.
        """
        home = self._root / _plain(name)
        make_folders(home)
        with locked(home / _EXAM, wait=True):
            yield

    @contextmanager
    def _changing(self, name: str, *, new: bool = False) -> Iterator[None]:
        """Change the versions of a name or its pointer while no other process does.

        First the lake hears of what a change before could not tell it.
        """
        home = self._root / name
        if new:
            make_folders(home)
        elif not home.is_dir():
            raise ConfigurationError(f"there is no {self.kind} {name!r} (`{self.command}`)")
        with locked(home / "lock", wait=True):
            self._settle(name)
            yield

    def _status(self, name: str, version: str, manifest: Mapping[str, Any]) -> str:
        pointer = read_pointer(self._root / name)
        status = None if pointer is None else pointer.status_of(version)
        if status is not None:
            return status
        if any(entry.served and entry.version == version for entry in self.history(name)):
            return "retired"
        return "refused" if manifest.get("gate_passed") is False else "candidate"

    def _next_version(self, home: Path) -> str:
        """Return a number that no version had, one that was removed neither: a pointer may name it."""
        pointer = read_pointer(home)
        names = [path.name for path in home.iterdir()]
        names += [entry.version for entry in read_history(home)]
        names += [] if pointer is None else [pointer.version, *pointer.trials.values()]
        return f"{max((int(name) for name in names if name.isdecimal()), default=0) + 1:04d}"


def versions_in(home: Path) -> list[str]:
    """Return the versions in a name's folder, oldest first; what is still brought in is none."""
    return sorted(path.parent.name for path in home.glob("[!.]*/manifest.json"))


def _plain(name: str) -> str:
    """Return a name that leads to no other folder.

    Raises:
        ConfigurationError: it does.
    """
    if not name or Path(name).name != name:
        raise ConfigurationError(f"{name!r} is no name of a version or of what it is a version of")
    return name
