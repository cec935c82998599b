"""What registries share: one pointer to the version that serves and to those that are on trial.

The versions are in folders (:mod:`train.registry.folders`); the pointer beside them says what serves
(:mod:`train.registry.pointer`). A change is audited first, then counts, and then stands in the
history and in the lake.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from train.errors import ServingChangedError, StaleSubstrateError
from train.registry.folders import RegisteredVersion, VersionFolders
from train.registry.pointer import (
    TRIALS,
    HistoryEntry,
    Pointer,
    Trial,
    read_pointer,
    write_pointer,
)
from trajectory.errors import ConfigurationError

type AuditHook = Callable[[str, str, Mapping[str, Any]], None]
"""Called with an action, the version that it is about, and its details, before the action counts."""


class Registry[V: RegisteredVersion](VersionFolders[V]):
    """The versions of a kind and what serves; each kind says what may serve."""

    may_be_absent: ClassVar[bool] = False
    """Whether calls go on where no version serves, so that a first one can be tried against none."""

    def __init__(self, root: Path, *, audit: AuditHook | None = None) -> None:
        super().__init__(root)
        self._audit = audit

    @abstractmethod
    def _servable(self, name: str, version: str) -> V:
        """Return a version that may serve, its gate aside; raise where it may not."""

    @abstractmethod
    def _require_gate(self, wanted: V, override: str | None) -> None:
        """Refuse a version that did not pass its gate, where its kind has one."""

    @abstractmethod
    def _stale(self, wanted: V) -> str | None:
        """Say what a version rests on that may no longer be used; None when nothing."""

    def live(self, name: str) -> V | None:
        """Return the version that serves, or None when there is none."""
        pointer = read_pointer(self._root / name)
        return self.get(name, pointer.version) if pointer is not None and pointer.version else None

    def trials(self, name: str) -> dict[Trial, V]:
        """Return the versions on trial beside the one that serves."""
        pointer = read_pointer(self._root / name)
        found = {} if pointer is None else pointer.trials
        return {trial: self.get(name, found[trial]) for trial in TRIALS if trial in found}

    def stale_serving(self) -> dict[str, str]:
        """Return what serves or is on trial and rests on what may no longer be used, each with the reason."""
        found: dict[str, str] = {}
        for name in self.names():
            with suppress(ConfigurationError):  # torn: whoever changes what serves is told of it
                pointer = read_pointer(self._root / name)
                versions = [] if pointer is None else [pointer.version, *pointer.trials.values()]
                for one in filter(None, (self._found(name, each) for each in versions if each)):
                    if (stale := self._stale(one)) is not None:
                        found[one.label] = stale
        return found

    def promote(
        self,
        name: str,
        version: str,
        *,
        actor: str,
        override: str | None = None,
        reason: str | None = None,
        serving: str | None = None,
    ) -> V:
        """Let a version serve.

        Args:
            name: in the registry.
            version: of that name.
            actor: who decides.
            override: why a version that did not pass its gate shall serve all the same; audited.
            reason: why one that passed shall serve; audited too.
            serving: the version that it takes over from, empty for none; None for whatever serves.

        Raises:
            ServingChangedError: another version serves than it was to take over from.
            GateRefusedError: it did not pass and there is no reason to override.
            StaleSubstrateError: it learned from something that may no longer be learned from;
                no reason overrides that.
        """
        wanted = self._servable(name, version)
        self._require_gate(wanted, override)
        with self._changing(name):
            pointer = read_pointer(self._root / name)
            if pointer is None or pointer.version != version:  # done again it changes nothing
                self._require_serving(name, serving)
            return self._point(wanted, "promote", actor=actor, reason=override or reason)

    def try_out(
        self,
        name: str,
        version: str,
        trial: Trial,
        *,
        actor: str,
        override: str | None = None,
        share: float | None = None,
        serving: str | None = None,
    ) -> V:
        """Put a version on trial beside the one that serves; it replaces the trial before.

        A canary answers clients, so it must have passed its gate; a shadow answers nobody.

        Args:
            name: in the registry.
            version: of that name.
            trial: canary or shadow.
            actor: who decides.
            override: why a version that did not pass its gate shall be a canary all the same.
            share: of the sessions that a canary answers; None for that of the routes.
            serving: the version that it is tried beside, empty for none; None for whatever serves.

        Raises:
            ServingChangedError: another version serves than it was to be tried beside.
            ConfigurationError: nothing serves yet, or this version does.
            GateRefusedError: a canary that did not pass, without a reason to override.
            StaleSubstrateError: it learned from something that may no longer be learned from.
        """
        wanted = self._servable(name, version)
        with self._changing(name):
            self._require_serving(name, serving)
            return self._try_out(wanted, trial, actor=actor, override=override, share=share)

    def _try_out(
        self, wanted: V, trial: Trial, *, actor: str, override: str | None, share: float | None
    ) -> V:
        name, version = wanted.name, wanted.version
        pointer = read_pointer(self._root / name)
        if pointer is None and self.may_be_absent:
            pointer = Pointer("", datetime.now(UTC).isoformat(), None)
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
        fresh = replace(
            pointer,
            trials={**others, trial: version},
            share=share if trial == "canary" else pointer.share,
        )
        entry = _entry(f"try_{trial}", version, before, actor, override)
        self._change(wanted.name, fresh, entry)
        if before is not None and before != version:
            left = self._found(name, before)
            if left is None:
                self._record_removed(name, before, entry)
            else:
                self._record(left, status=left.status, actor=actor)
        return self._noted(wanted, entry)

    def end_trial(
        self, name: str, trial: Trial, *, actor: str, reason: str, tried: str | None = None
    ) -> str:
        """Take a version off its trial and return its label; what serves goes on.

        It ends too where the version's folder was removed.

        Args:
            name: in the registry.
            trial: canary or shadow.
            actor: who decides.
            reason: why.
            tried: the version that is to be on that trial; None for whichever is.

        Raises:
            ConfigurationError: there is no such trial.
            ServingChangedError: another version is on it.
        """
        with self._changing(name):
            pointer = read_pointer(self._root / name)
            if pointer is None or trial not in pointer.trials:
                raise ConfigurationError(f"no version of {name!r} is on trial as {trial}")
            version = pointer.trials[trial]
            if tried not in (None, version):
                raise ServingChangedError(
                    f"{name}@{version} is the {trial}, and no more {name}@{tried}"
                )
            left = {place: found for place, found in pointer.trials.items() if place != trial}
            entry = _entry(f"end_{trial}", version, None, actor, reason)
            share = None if trial == "canary" else pointer.share
            self._change(name, replace(pointer, trials=left, share=share), entry)
            ended = self._found(name, version)
            if ended is None:
                self._record_removed(name, version, entry)
            else:
                self._noted(ended, entry)
            return f"{name}@{version}"

    def rollback(self, name: str, *, actor: str, reason: str, serving: str | None = None) -> V:
        """Let the newest of the versions that served before serve again, if it may.

        A version that learned from something withdrawn is passed over; the history names it.

        Args:
            name: in the registry.
            actor: who decides.
            reason: why.
            serving: the version that is taken back; None for whichever serves.

        Raises:
            ConfigurationError: nothing served before.
            StaleSubstrateError: none of those that served before may serve.
            ServingChangedError: another version serves than the one that was to be taken back.
        """
        with self._changing(name):
            self._require_serving(name, serving)
            return self._roll_back(name, actor=actor, reason=reason)

    def _require_serving(self, name: str, wanted: str | None) -> None:
        """Refuse a change that was decided on while another version served.

        Raises:
            ServingChangedError: it was.
        """
        pointer = read_pointer(self._root / name)
        serving = "" if pointer is None else pointer.version
        if wanted not in (None, serving):
            raise ServingChangedError(
                f"{_label(name, serving)} serves since a moment ago, and no more "
                f"{_label(name, wanted or '')}; look again, and decide anew"
            )

    def _roll_back(self, name: str, *, actor: str, reason: str) -> V:
        pointer = read_pointer(self._root / name)
        if pointer is None or not pointer.version:
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

    def _point(self, wanted: V, action: str, *, actor: str, reason: str | None) -> V:
        """Move the pointer: audit first, then the atomic replacement, then the history."""
        pointer = read_pointer(self._root / wanted.name)
        previous = None if pointer is None else pointer.version or None
        if previous == wanted.version:
            return wanted
        serving = None if previous is None else self._found(wanted.name, previous)
        trials = {} if pointer is None else pointer.trials
        entry = _entry(action, wanted.version, previous, actor, reason)
        fresh = Pointer(
            wanted.version,
            entry.at,
            previous if action != "rollback" else self._before(wanted.name, wanted.version),
            (left := {trial: found for trial, found in trials.items() if found != wanted.version}),
            pointer.share if pointer is not None and "canary" in left else None,
        )
        self._change(wanted.name, fresh, entry)
        if serving is not None:
            self._record(serving, status="retired", reason=reason, actor=actor)
        elif previous is not None:
            self._record_removed(wanted.name, previous, entry)
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


def _entry(
    action: str, version: str, previous: str | None, actor: str, reason: str | None
) -> HistoryEntry:
    return HistoryEntry(datetime.now(UTC).isoformat(), action, version, previous, actor, reason)


def _label(name: str, version: str) -> str:
    return f"{name}@{version}" if version else f"no version of {name}"
