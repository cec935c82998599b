"""Models in versioned folders, with one pointer to what serves and what is on trial beside it.

``models/<name>/<version>/`` holds weights (safetensors), tokenizer, ``README.md`` (model card),
``bom.json`` (CycloneDX ML-BOM) and ``manifest.json``; the pointer beside them says what serves
(:mod:`train.registry.pointer`). A version's files never change once it stands in its place.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from train.errors import GateRefusedError, StaleSubstrateError
from train.registry.lineage import removed_version
from train.registry.model_card import bill_of_materials, model_card
from train.registry.pointer import (
    TRIALS,
    HistoryEntry,
    Pointer,
    Trial,
    read_history,
    read_pointer,
    write_pointer,
)
from train.substrate.selection import lost_items
from train.substrate.source import LearningSource
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError
from trajectory.files import READABLE, locked, read_file, replace_file, sync_folder

type AuditHook = Callable[[str, str, Mapping[str, Any]], None]
"""Called with an action, the model version it is about, and its details, before the action counts."""


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One registered version of a model."""

    name: str
    version: str
    path: Path
    """Folder that any Hugging Face loader takes."""
    status: str
    """candidate | refused (by its gate) | live | canary | shadow | retired"""
    manifest: Mapping[str, Any]

    @property
    def label(self) -> str:
        """``name@version``, as steps and tables name it."""
        return f"{self.name}@{self.version}"


class ModelRegistry:
    """The models of one installation."""

    def __init__(
        self, root: Path, *, source: LearningSource | None = None, audit: AuditHook | None = None
    ) -> None:
        self._root = root
        self._source = source
        self._audit = audit

    def label_of(self, folder: Path) -> str | None:
        """Return ``name@version`` of a registered model's folder; None for any other folder."""
        folder = folder.resolve()
        inside = folder.parent.parent == self._root.resolve()
        found = inside and (folder / "manifest.json").is_file()
        return f"{folder.parent.name}@{folder.name}" if found else None

    def names(self) -> list[str]:
        """Return the names of all models."""
        if not self._root.is_dir():
            return []
        return sorted(path.name for path in self._root.iterdir() if _versions_in(path))

    def versions(self, name: str) -> list[ModelVersion]:
        """Return the versions of a model, oldest first."""
        folder = self._root / name
        return [self.get(name, version) for version in _versions_in(folder)]

    def get(self, name: str, version: str) -> ModelVersion:
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
                f"no version {version!r} of model {name!r}; "
                f"there are {', '.join(known) or 'none'} (`headrace train list`)"
            ) from None
        return ModelVersion(name, version, folder, self._status(name, version, manifest), manifest)

    def live(self, name: str) -> ModelVersion | None:
        """Return the version that serves, or None when there is none."""
        pointer = read_pointer(self._root / name)
        return None if pointer is None else self.get(name, pointer.version)

    def trials(self, name: str) -> dict[Trial, ModelVersion]:
        """Return the versions on trial beside the one that serves."""
        pointer = read_pointer(self._root / name)
        found = {} if pointer is None else pointer.trials
        return {trial: self.get(name, found[trial]) for trial in TRIALS if trial in found}

    def register(
        self, name: str, model: Path, manifest: Mapping[str, Any], *, passed: bool
    ) -> ModelVersion:
        """Move a trained model's folder into the registry as a new version.

        Args:
            name: of the model.
            model: folder with weights and tokenizer; it is moved.
            manifest: of the run that made it; weights hash and version are added.
            passed: whether its gate let it through.
        """
        facts = {**manifest, "gate_passed": passed, "weights_hash": weights_hash(model)}
        with self._changing(name, new=True):
            return self._add(name, model, facts, bring=shutil.move)

    def _add(
        self,
        name: str,
        model: Path,
        facts: Mapping[str, Any],
        *,
        bring: Callable[[Path, Path], Any],
    ) -> ModelVersion:
        """Bring a model's folder into its place under the next number; nobody sees it half made."""
        home = self._root / name
        version = self._next_version(home)
        facts = {
            **facts,
            "name": name,
            "version": version,
            "registered_at": datetime.now(UTC).isoformat(),
        }
        papers = {"README.md": model_card(facts), "bom.json": bill_of_materials(facts)}
        incoming = home / ".incoming"
        if incoming.exists():  # of a process that died here
            shutil.rmtree(incoming)
        bring(model, incoming)
        for paper, text in papers.items():
            (incoming / paper).write_text(text, encoding="utf-8")
        replace_file(incoming / "manifest.json", canonical_json(facts), READABLE)
        incoming.rename(home / version)
        sync_folder(home)
        registered = self.get(name, version)
        self._record(registered, status=registered.status)
        return registered

    @contextmanager
    def _changing(self, name: str, *, new: bool = False) -> Iterator[None]:
        """Change a model's versions or its pointer while no other process does."""
        home = self._root / name
        if new:
            home.mkdir(parents=True, exist_ok=True)
        elif not home.is_dir():
            raise ConfigurationError(f"there is no model {name!r} (`headrace train list`)")
        with locked(home / "lock", wait=True):
            yield

    def adopt(self, name: str, model: Path, *, actor: str, reason: str) -> ModelVersion:
        """Register a copy of a model as the first version of a name, and let it serve.

        A registered version keeps its manifest under the new name, so consent and lineage follow
        it. Any other model passes as one that was not trained here.

        Raises:
            ConfigurationError: a version of this name serves already, or the folder is a copy of
                a version whose origin nobody can tell.
            GateRefusedError: it is a registered version that did not pass its gate.
            StaleSubstrateError: it is one that learned from something withdrawn.
        """
        label = self.label_of(model)
        if label is not None:
            own, _, version = label.partition("@")
            known = self._servable(own, version)
            _require_gate(known, None)
            facts = dict(known.manifest)
        else:
            self._require_foreign(model)
            facts = {"origin": "adopted", "gate_passed": True}
        facts["weights_hash"] = weights_hash(model)
        with self._changing(name, new=True):
            serving = self.live(name)
            if serving is not None:
                raise ConfigurationError(
                    f"{serving.label} serves already; train a candidate and promote that"
                )
            adopted = self._add(name, model, facts, bring=shutil.copytree)
            return self._point(adopted, "adopt", actor=actor, reason=reason)

    def _require_foreign(self, model: Path) -> None:
        """Refuse what was trained here, or may have been: nobody could tell what it learned from.

        Raises:
            ConfigurationError: naming what gives it away, or it holds no weights that are data alone.
        """
        if (model / "items.parquet").exists():
            raise ConfigurationError(
                f"{model} holds items.parquet, so it is a copy of a version that was trained here; "
                "adopt the version's own folder in models/, which knows what it learned from"
            )
        if (model / "trainer_state.json").exists():
            raise ConfigurationError(
                f"{model} holds trainer_state.json, so it is a checkpoint of a training; finish the "
                "run with `headrace train run --resume`, or adopt the model that it ended with"
            )
        for path in model.rglob("*") if model.is_dir() else ():
            if not path.is_file() and (path.is_symlink() or not path.is_dir()):
                raise ConfigurationError(
                    f"{path} is no file, so it cannot be copied; leave it out of the model's folder"
                )
        if model.is_dir() and not any(model.glob("*.safetensors")):
            raise ConfigurationError(
                f"{model} holds no *.safetensors; other weights may be programs: convert them first"
            )
        weights = weights_hash(model)
        for one in (version for name in self.names() for version in self.versions(name)):
            trained_here = (one.path / "items.parquet").exists() or one.manifest.get("run_id")
            if trained_here and one.manifest.get("weights_hash") == weights:
                raise ConfigurationError(
                    f"{model} has the same weights as {one.label}, which was trained here; "
                    "adopt that version's own folder in models/, which knows what it learned from"
                )

    def promote(
        self, name: str, version: str, *, actor: str, override: str | None = None
    ) -> ModelVersion:
        """Let a version serve.

        Args:
            name: of the model.
            version: of the model.
            actor: who decides.
            override: why a version that did not pass its gate shall serve all the same; audited.

        Raises:
            GateRefusedError: it did not pass and there is no reason to override.
            StaleSubstrateError: it learned from something that may no longer be learned from;
                no reason overrides that.
        """
        wanted = self._servable(name, version)
        _require_gate(wanted, override)
        with self._changing(name):
            return self._point(wanted, "promote", actor=actor, reason=override)

    def try_out(
        self, name: str, version: str, trial: Trial, *, actor: str, override: str | None = None
    ) -> ModelVersion:
        """Put a version on trial beside the one that serves; it replaces the trial before.

        A canary answers clients, so it must have passed its gate; a shadow answers nobody.

        Args:
            name: of the model.
            version: of the model.
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

    def _try_out(
        self, wanted: ModelVersion, trial: Trial, *, actor: str, override: str | None
    ) -> ModelVersion:
        name, version = wanted.name, wanted.version
        pointer = read_pointer(self._root / name)
        if pointer is None:
            raise ConfigurationError(f"no version of {name!r} serves; promote one first")
        if pointer.version == version:
            raise ConfigurationError(
                f"{wanted.label} serves already; try another version beside it"
            )
        if trial == "canary":
            _require_gate(wanted, override)
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

    def rollback(self, name: str, *, actor: str, reason: str) -> ModelVersion:
        """Let the newest of the versions that served before serve again, if it may.

        A version that learned from something withdrawn is passed over; the history names it.

        Raises:
            ConfigurationError: nothing served before.
            StaleSubstrateError: none of those that served before may serve.
        """
        with self._changing(name):
            return self._roll_back(name, actor=actor, reason=reason)

    def _roll_back(self, name: str, *, actor: str, reason: str) -> ModelVersion:
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
            "goes on serving: promote another, or train anew from what is clean"
        )

    def _earlier(self, name: str, pointer: Pointer) -> Iterator[str]:
        """Yield what served before, newest first."""
        seen, version = {pointer.version}, pointer.previous
        while version is not None and version not in seen:
            seen.add(version)
            yield version
            version = self._before(name, version)

    def _found(self, name: str, version: str) -> ModelVersion | None:
        """Return a version; None where its folder was removed."""
        there = (self._root / name / version / "manifest.json").is_file()
        return self.get(name, version) if there else None

    def look(self, name: str) -> int:
        """Return the how-manieth candidate the next is since one passed or what serves changed."""
        pointer = read_pointer(self._root / name)
        since = "" if pointer is None else pointer.since
        count = 1
        for version in reversed(self.versions(name)):
            manifest = version.manifest
            if manifest.get("gate_passed") or manifest["registered_at"] <= since:
                break
            findings = (manifest.get("gate") or {}).get("findings", ())
            count += any(finding["rule"] == "minimum_gain" for finding in findings)
        return count

    def history(self, name: str) -> list[HistoryEntry]:
        """Return every change of what serves and what is on trial, oldest first."""
        return read_history(self._root / name)

    def _servable(self, name: str, version: str) -> ModelVersion:
        wanted = self.get(name, version)
        if wanted.manifest.get("makes", "policy") != "policy":
            raise ConfigurationError(
                f"{wanted.label} is a {wanted.manifest['makes']}: it scores answers and gives none"
            )
        self._require_consent(wanted)
        return wanted

    def _require_consent(self, wanted: ModelVersion) -> None:
        """Refuse what learned, itself or through what it began with, from something withdrawn."""
        stale = self._stale(wanted)
        if stale is not None:
            raise StaleSubstrateError(
                f"{stale}; build the substrate again and train anew from what is clean"
            )

    def _stale(self, wanted: ModelVersion) -> str | None:
        """Say what a version learned that may no longer be learned from; None when nothing."""
        began = f", and {wanted.label} began with it"
        gone = "may no longer be learned from (consent withdrawn, erased or expired)"
        if lost := self._lost_items(wanted):
            return f"{wanted.label} learned from {lost} items that {gone}"
        label, seen = str(wanted.manifest.get("base") or ""), {wanted.label}
        while label not in seen:
            seen.add(label)
            name, _, version = label.partition("@")
            one = self._found(name, version) if name and version else None
            if one is not None:
                if lost := self._lost_items(one):
                    return f"{label} learned from {lost} items that {gone}{began}"
                label = str(one.manifest.get("base") or "")
                continue
            removed = None if self._source is None else removed_version(self._source, label)
            if removed is None:
                return None
            if removed.is_stale:
                return f"{label}, whose folder was removed, had a substrate with items that {gone}{began}"
            label = removed.base
        return None

    def _lost_items(self, one: ModelVersion) -> int:
        path = one.path / "items.parquet"
        if self._source is None or not path.exists():
            return 0
        return len(lost_items(self._source, path, one.manifest["data"]["purposes"]))

    def _point(
        self, wanted: ModelVersion, action: str, *, actor: str, reason: str | None
    ) -> ModelVersion:
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
            self._audit(f"model.{entry.action}", f"{name}@{entry.version}", asdict(entry))
        write_pointer(self._root / name, pointer, entry)

    def _noted(self, about: ModelVersion, entry: HistoryEntry) -> ModelVersion:
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
        return "candidate" if manifest.get("gate_passed") else "refused"

    def _next_version(self, home: Path) -> str:
        """Return a number that no version had, one that was removed neither: a pointer may name it."""
        pointer = read_pointer(home)
        names = [path.name for path in home.iterdir()]
        names += [entry.version for entry in read_history(home)]
        names += [] if pointer is None else [pointer.version, *pointer.trials.values()]
        return f"{max((int(name) for name in names if name.isdecimal()), default=0) + 1:04d}"

    def _record(
        self,
        model: ModelVersion,
        *,
        status: str,
        reason: str | None = None,
        actor: str | None = None,
    ) -> None:
        if self._source is None:
            return
        row = {
            "name": model.name,
            "version": model.version,
            "recorded_at": datetime.now(UTC),
            "run_id": model.manifest.get("run_id"),
            "path": f"models/{model.name}/{model.version}",
            "base": model.manifest.get("base"),
            "status": status,
            "gate": canonical_json(model.manifest.get("gate")).decode(),
            "weights_hash": model.manifest.get("weights_hash"),
            "reason": reason,
            "actor": actor,
        }
        self._source.append_rows("models", [row])


def weights_hash(folder: Path) -> str:
    """Return the hash of all weight files of a model folder, in the order of their names."""
    digest = blake2b(digest_size=20)
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return "b2:" + digest.hexdigest()


def _versions_in(home: Path) -> list[str]:
    """Return the versions in a model's folder, oldest first; what is still brought in is none."""
    return sorted(path.parent.name for path in home.glob("[!.]*/manifest.json"))


def _plain(name: str) -> str:
    """Return a name that leads to no other folder.

    Raises:
        ConfigurationError: it does.
    """
    if not name or Path(name).name != name:
        raise ConfigurationError(f"{name!r} is no name of a model or a version")
    return name


def _entry(
    action: str, version: str, previous: str | None, actor: str, reason: str | None
) -> HistoryEntry:
    return HistoryEntry(datetime.now(UTC).isoformat(), action, version, previous, actor, reason)


def _require_gate(wanted: ModelVersion, override: str | None) -> None:
    if not wanted.manifest.get("gate_passed") and not (override and override.strip()):
        raise GateRefusedError(
            f"{wanted.label} did not pass its gate ({_failed(wanted)}); train a better one, "
            "or promote it with --override and a reason, which is audited"
        )


def _failed(model: ModelVersion) -> str:
    findings = (model.manifest.get("gate") or {}).get("findings", [])
    return ", ".join(f["rule"] for f in findings if not f["passed"]) or "not evaluated"
