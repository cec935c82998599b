"""What registries share: versions in folders, and one pointer to what serves and is on trial.

``<root>/<name>/<version>/manifest.json`` says what a version is, and never changes; the pointer
beside the versions says what serves (:mod:`train.registry.pointer`). A change is audited first,
then counts, and then stands in the history and in the lake.
"""

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from train.errors import StaleSubstrateError
from train.registry.pointer import (
    TRIALS,
    HistoryEntry,
    Pointer,
    Trial,
    read_history,
    read_pointer,
    write_pointer,
)
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError
from trajectory.files import (
    READABLE,
    locked,
    make_folders,
    read_file,
    replace_file,
    sync_files,
    sync_folder,
)

type AuditHook = Callable[[str, str, Mapping[str, Any]], None]
"""Called with an action, the version that it is about, and its details, before the action counts."""


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


class Registry[V: RegisteredVersion](ABC):
    """The versions below one folder; each kind says what may serve, and what the lake is told."""

    kind: ClassVar[str]
    """What it registers, in errors and audit entries."""
    command: ClassVar[str]
    """Lists what there is."""

    def __init__(self, root: Path, *, audit: AuditHook | None = None) -> None:
        self._root = root
        self._audit = audit

    @abstractmethod
    def _made(
        self, name: str, version: str, folder: Path, status: str, manifest: Mapping[str, Any]
    ) -> V:
        """Return a version as its own kind."""

    @abstractmethod
    def _servable(self, name: str, version: str) -> V:
        """Return a version that may serve, its gate aside; raise where it may not."""

    @abstractmethod
    def _require_gate(self, wanted: V, override: str | None) -> None:
        """Refuse a version that did not pass its gate, where its kind has one."""

    @abstractmethod
    def _stale(self, wanted: V) -> str | None:
        """Say what a version rests on that may no longer be used; None when nothing."""

    @abstractmethod
    def _record(
        self, one: V, *, status: str, reason: str | None = None, actor: str | None = None
    ) -> None:
        """Write a version's status into the lake."""

    def names(self) -> list[str]:
        """Return the names of all."""
        if not self._root.is_dir():
            return []
        return sorted(path.name for path in self._root.iterdir() if _versions_in(path))

    def versions(self, name: str) -> list[V]:
        """Return the versions of a name, oldest first."""
        folder = self._root / name
        return [self.get(name, version) for version in _versions_in(folder)]

    def get(self, name: str, version: str) -> V:
        """Return one version.

        Raises:
            ConfigurationError: there is no such version; the text lists those that exist.
        """
        folder = self._root / _plain(name) / _plain(version)
        try:
            manifest = json.loads(read_file(folder / "manifest.json"))
        except ValueError:
            raise ConfigurationError(
                f"{folder / 'manifest.json'} is torn; restore it, or remove that version's folder"
            ) from None
        except OSError:
            known = _versions_in(self._root / name) if name in self.names() else []
            raise ConfigurationError(
                f"no version {version!r} of {self.kind} {name!r}; "
                f"there are {', '.join(known) or 'none'} (`{self.command}`)"
            ) from None
        status = self._status(name, version, manifest)
        return self._made(name, version, folder, status, manifest)

    def live(self, name: str) -> V | None:
        """Return the version that serves, or None when there is none."""
        pointer = read_pointer(self._root / name)
        return None if pointer is None else self.get(name, pointer.version)

    def trials(self, name: str) -> dict[Trial, V]:
        """Return the versions on trial beside the one that serves."""
        pointer = read_pointer(self._root / name)
        found = {} if pointer is None else pointer.trials
        return {trial: self.get(name, found[trial]) for trial in TRIALS if trial in found}

    def _place(
        self, name: str, facts: Mapping[str, Any], fill: Callable[[Path, Mapping[str, Any]], None]
    ) -> V:
        """Put a new version in its place under the next number; nobody sees it half made.

        Args:
            name: in the registry.
            facts: of its manifest; name, version and time are added.
            fill: called with the folder to make, and with its whole manifest.
        """
        home = self._root / name
        version = self._next_version(home)
        facts = {
            **facts,
            "name": name,
            "version": version,
            "registered_at": datetime.now(UTC).isoformat(),
        }
        incoming = home / ".incoming"
        if incoming.exists():  # of a process that died here
            shutil.rmtree(incoming)
        fill(incoming, facts)
        replace_file(incoming / "manifest.json", canonical_json(facts), READABLE)
        sync_files(path for path in incoming.rglob("*") if path.is_file())
        incoming.rename(home / version)
        sync_folder(home)
        registered = self.get(name, version)
        self._record(registered, status=registered.status)
        return registered

    @contextmanager
    def _changing(self, name: str, *, new: bool = False) -> Iterator[None]:
        """Change the versions of a name or its pointer while no other process does."""
        home = self._root / name
        if new:
            make_folders(home)
        elif not home.is_dir():
            raise ConfigurationError(f"there is no {self.kind} {name!r} (`{self.command}`)")
        with locked(home / "lock", wait=True):
            yield

    def promote(self, name: str, version: str, *, actor: str, override: str | None = None) -> V:
        """Let a version serve.

        Args:
            name: in the registry.
            version: of that name.
            actor: who decides.
            override: why a version that did not pass its gate shall serve all the same; audited.

        Raises:
            GateRefusedError: it did not pass and there is no reason to override.
            StaleSubstrateError: it learned from something that may no longer be learned from;
                no reason overrides that.
        """
        wanted = self._servable(name, version)
        self._require_gate(wanted, override)
        with self._changing(name):
            return self._point(wanted, "promote", actor=actor, reason=override)

    def try_out(
        self, name: str, version: str, trial: Trial, *, actor: str, override: str | None = None
    ) -> V:
        """Put a version on trial beside the one that serves; it replaces the trial before.

        A canary answers clients, so it must have passed its gate; a shadow answers nobody.

        Args:
            name: in the registry.
            version: of that name.
            trial: canary or shadow.
            actor: who decides.
            override: why a version that did not pass its gate shall be a canary all the same.

        Raises:
            ConfigurationError: nothing serves yet, or this version does.
            GateRefusedError: a canary that did not pass, without a reason to override.
            StaleSubstrateError: it learned from something that may no longer be learned from.
        """
        wanted = self._servable(name, version)
        with self._changing(name):
            return self._try_out(wanted, trial, actor=actor, override=override)

    def _try_out(self, wanted: V, trial: Trial, *, actor: str, override: str | None) -> V:
        name, version = wanted.name, wanted.version
        pointer = read_pointer(self._root / name)
        if pointer is None:
            raise ConfigurationError(f"no version of {name!r} serves; promote one first")
        if pointer.version == version:
            raise ConfigurationError(
                f"{wanted.label} serves already; try another version beside it"
            )
        if trial == "canary":
            self._require_gate(wanted, override)
        before = pointer.trials.get(trial)
        others = {place: found for place, found in pointer.trials.items() if found != version}
        fresh = replace(pointer, trials={**others, trial: version})
        entry = _entry(f"try_{trial}", version, before, actor, override)
        self._change(wanted.name, fresh, entry)
        left = None if before in (None, version) else self._found(name, str(before))
        if left is not None:
            self._record(left, status=left.status, actor=actor)
        return self._noted(wanted, entry)

    def end_trial(self, name: str, trial: Trial, *, actor: str, reason: str) -> str:
        """Take a version off its trial and return its label; what serves goes on.

        It ends too where the version's folder was removed.

        Raises:
            ConfigurationError: there is no such trial.
        """
        with self._changing(name):
            pointer = read_pointer(self._root / name)
            if pointer is None or trial not in pointer.trials:
                raise ConfigurationError(f"no version of {name!r} is on trial as {trial}")
            version = pointer.trials[trial]
            left = {place: found for place, found in pointer.trials.items() if place != trial}
            entry = _entry(f"end_{trial}", version, None, actor, reason)
            self._change(name, replace(pointer, trials=left), entry)
            tried = self._found(name, version)
            if tried is not None:
                self._noted(tried, entry)
            return f"{name}@{version}"

    def rollback(self, name: str, *, actor: str, reason: str) -> V:
        """Let the newest of the versions that served before serve again, if it may.

        A version that learned from something withdrawn is passed over; the history names it.

        Raises:
            ConfigurationError: nothing served before.
            StaleSubstrateError: none of those that served before may serve.
        """
        with self._changing(name):
            return self._roll_back(name, actor=actor, reason=reason)

    def _roll_back(self, name: str, *, actor: str, reason: str) -> V:
        pointer = read_pointer(self._root / name)
        if pointer is None:
            raise ConfigurationError(f"no version of {name!r} serves, so there is nothing to undo")
        serving = f"{name}@{pointer.version}"
        passed_over: list[str] = []
        for version in self._earlier(name, pointer):
            earlier = self._found(name, version)
            if earlier is None:
                passed_over.append(f"{name}@{version} is not there any more")
                continue
            stale = self._stale(earlier)
            if stale is None:
                why = "; ".join([reason, *(f"passed over: {one}" for one in passed_over)])
                return self._point(earlier, "rollback", actor=actor, reason=why)
            passed_over.append(stale)
        if not passed_over:
            raise ConfigurationError(f"{serving} is the first that served; promote another")
        raise StaleSubstrateError(
            f"no earlier version of {name!r} may serve: {'; '.join(passed_over)}; {serving} "
            "goes on serving: promote another, or make one anew from what is clean"
        )

    def _earlier(self, name: str, pointer: Pointer) -> Iterator[str]:
        """Yield what served before, newest first."""
        seen, version = {pointer.version}, pointer.previous
        while version is not None and version not in seen:
            seen.add(version)
            yield version
            version = self._before(name, version)

    def _found(self, name: str, version: str) -> V | None:
        """Return a version; None where its folder was removed."""
        there = (self._root / name / version / "manifest.json").is_file()
        return self.get(name, version) if there else None

    def history(self, name: str) -> list[HistoryEntry]:
        """Return every change of what serves and what is on trial, oldest first."""
        return read_history(self._root / name)

    def _point(self, wanted: V, action: str, *, actor: str, reason: str | None) -> V:
        """Move the pointer: audit first, then the atomic replacement, then the history."""
        pointer = read_pointer(self._root / wanted.name)
        previous = None if pointer is None else pointer.version
        if previous == wanted.version:
            return wanted
        serving = None if previous is None else self._found(wanted.name, previous)
        trials = {} if pointer is None else pointer.trials
        entry = _entry(action, wanted.version, previous, actor, reason)
        fresh = Pointer(
            wanted.version,
            entry.at,
            previous if action != "rollback" else self._before(wanted.name, wanted.version),
            {trial: found for trial, found in trials.items() if found != wanted.version},
        )
        self._change(wanted.name, fresh, entry)
        if serving is not None:
            self._record(serving, status="retired", reason=reason, actor=actor)
        return self._noted(wanted, entry)

    def _change(self, name: str, pointer: Pointer, entry: HistoryEntry) -> None:
        if self._audit is not None:
            self._audit(f"{self.kind}.{entry.action}", f"{name}@{entry.version}", asdict(entry))
        write_pointer(self._root / name, pointer, entry)

    def _noted(self, about: V, entry: HistoryEntry) -> V:
        """Write a version's new status into the lake, and return it."""
        now = self.get(about.name, about.version)
        self._record(now, status=now.status, reason=entry.reason, actor=entry.actor)
        return now

    def _before(self, name: str, version: str) -> str | None:
        """Return what served before a version did for the first time."""
        entries = [e for e in self.history(name) if e.served and e.version == version]
        return entries[0].previous if entries else None

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


def _versions_in(home: Path) -> list[str]:
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


def _entry(
    action: str, version: str, previous: str | None, actor: str, reason: str | None
) -> HistoryEntry:
    return HistoryEntry(datetime.now(UTC).isoformat(), action, version, previous, actor, reason)
