"""Models in versioned folders, with one pointer to the version that serves.

``models/<name>/<version>/`` holds weights (safetensors), tokenizer, ``README.md`` (model card),
``bom.json`` (CycloneDX ML-BOM) and ``manifest.json``; ``models/<name>/live.json`` names the
version that serves and is replaced atomically; ``models/<name>/history.jsonl`` tells who changed
it, when and why. A version's files never change once it stands in its place.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from train.errors import GateRefusedError, StaleSubstrateError
from train.model_card import bill_of_materials, model_card
from train.selection import permitted_steps
from train.source import LearningSource
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError
from trajectory.files import READABLE, replace_file

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
    """candidate | refused (by its gate) | live | retired"""
    manifest: Mapping[str, Any]

    @property
    def label(self) -> str:
        """``name@version``, as steps and tables name it."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One change of what serves."""

    at: str
    action: str
    """adopt | promote | rollback"""
    version: str
    previous: str | None
    actor: str
    reason: str | None


class ModelRegistry:
    """The models of one installation."""

    def __init__(
        self, root: Path, *, source: LearningSource | None = None, audit: AuditHook | None = None
    ) -> None:
        self._root = root
        self._source = source
        self._audit = audit

    def names(self) -> list[str]:
        """Return the names of all models."""
        if not self._root.is_dir():
            return []
        return sorted(path.name for path in self._root.iterdir() if path.is_dir())

    def versions(self, name: str) -> list[ModelVersion]:
        """Return the versions of a model, oldest first."""
        folder = self._root / name
        found = sorted(path.parent.name for path in folder.glob("*/manifest.json"))
        return [self.get(name, version) for version in found]

    def get(self, name: str, version: str) -> ModelVersion:
        """Return one version.

        Raises:
            ConfigurationError: there is no such version; the text lists those that exist.
        """
        folder = self._root / name / version
        try:
            manifest = json.loads((folder / "manifest.json").read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            known = sorted(path.parent.name for path in (self._root / name).glob("*/manifest.json"))
            raise ConfigurationError(
                f"no version {version!r} of model {name!r}; "
                f"there are {', '.join(known) or 'none'} (`headrace train list`)"
            ) from None
        return ModelVersion(name, version, folder, self._status(name, version, manifest), manifest)

    def live(self, name: str) -> ModelVersion | None:
        """Return the version that serves, or None when there is none."""
        pointer = self._root / name / "live.json"
        if not pointer.exists():
            return None
        return self.get(name, str(json.loads(pointer.read_bytes())["version"]))

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
        home = self._root / name
        home.mkdir(parents=True, exist_ok=True)
        version = self._next_version(home)
        facts = {
            **manifest,
            "name": name,
            "version": version,
            "registered_at": datetime.now(UTC).isoformat(),
            "gate_passed": passed,
            "weights_hash": weights_hash(model),
        }
        (model / "README.md").write_text(model_card(facts), encoding="utf-8")
        (model / "bom.json").write_text(bill_of_materials(facts), encoding="utf-8")
        (model / "manifest.json").write_bytes(canonical_json(facts))
        shutil.move(model, home / version)
        registered = self.get(name, version)
        self._record(registered, status=registered.status)
        return registered

    def adopt(self, name: str, model: Path, *, actor: str, reason: str) -> ModelVersion:
        """Register a copy of a model that was not trained here, and let it serve.

        Raises:
            ConfigurationError: a version of this name serves already; promote another instead.
        """
        serving = self.live(name)
        if serving is not None:
            raise ConfigurationError(
                f"{serving.label} serves already; train a candidate and promote that"
            )
        copy = self._root / f".adopting-{name}-{os.getpid()}"
        shutil.copytree(model, copy)
        adopted = self.register(name, copy, {"origin": "adopted"}, passed=True)
        return self._point(adopted, "adopt", actor=actor, reason=reason)

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
        wanted = self.get(name, version)
        if not wanted.manifest.get("gate_passed") and not (override and override.strip()):
            raise GateRefusedError(
                f"{wanted.label} did not pass its gate ({_failed(wanted)}); train a better one, "
                "or give --override with a reason, which is audited"
            )
        self._require_consent(wanted)
        return self._point(wanted, "promote", actor=actor, reason=override)

    def rollback(self, name: str, *, actor: str, reason: str) -> ModelVersion:
        """Let the version serve that served before the present one.

        Raises:
            ConfigurationError: nothing served before.
        """
        serving = self.live(name)
        if serving is None:
            raise ConfigurationError(f"no version of {name!r} serves, so there is nothing to undo")
        pointer = json.loads((self._root / name / "live.json").read_bytes())
        previous = pointer.get("previous")
        if previous is None:
            raise ConfigurationError(f"{serving.label} is the first that served; promote another")
        return self._point(self.get(name, previous), "rollback", actor=actor, reason=reason)

    def history(self, name: str) -> list[HistoryEntry]:
        """Return every change of what serves, oldest first."""
        path = self._root / name / "history.jsonl"
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8").splitlines()
        return [HistoryEntry(**json.loads(line)) for line in lines]

    def _require_consent(self, wanted: ModelVersion) -> None:
        path = wanted.path / "items.parquet"
        if self._source is None or not path.exists():
            return
        rows = pq.read_table(path, columns=["tenant_id", "step_ids"]).to_pylist()
        permitted = permitted_steps(self._source, tuple(wanted.manifest["data"]["purposes"]))
        lost = sum(
            any((row["tenant_id"], step) not in permitted for step in row["step_ids"])
            for row in rows
        )
        if lost:
            raise StaleSubstrateError(
                f"{wanted.label} learned from {lost} items that may no longer be learned from "
                "(consent withdrawn, erased or expired); build the substrate again and train anew"
            )

    def _point(
        self, wanted: ModelVersion, action: str, *, actor: str, reason: str | None
    ) -> ModelVersion:
        """Move the pointer: audit first, then the atomic replacement, then the history."""
        serving = self.live(wanted.name)
        previous = None if serving is None else serving.version
        if previous == wanted.version:
            return wanted
        before = previous if action != "rollback" else self._before(wanted)
        now = datetime.now(UTC).isoformat()
        entry = HistoryEntry(now, action, wanted.version, previous, actor, reason)
        if self._audit is not None:
            self._audit(f"model.{action}", wanted.label, asdict(entry))
        pointer = {
            "name": wanted.name,
            "version": wanted.version,
            "path": wanted.version,
            "since": now,
            "previous": before,
        }
        replace_file(self._root / wanted.name / "live.json", canonical_json(pointer), READABLE)
        with (self._root / wanted.name / "history.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(entry), sort_keys=True) + "\n")
        if serving is not None:
            self._record(serving, status="retired", reason=reason, actor=actor)
        served = self.get(wanted.name, wanted.version)
        self._record(served, status="live", reason=reason, actor=actor)
        return served

    def _before(self, wanted: ModelVersion) -> str | None:
        """Return what served before ``wanted`` did for the first time."""
        entries = [e for e in self.history(wanted.name) if e.version == wanted.version]
        return entries[0].previous if entries else None

    def _status(self, name: str, version: str, manifest: Mapping[str, Any]) -> str:
        pointer = self._root / name / "live.json"
        if pointer.exists() and json.loads(pointer.read_bytes())["version"] == version:
            return "live"
        if any(entry.version == version for entry in self.history(name)):
            return "retired"
        return "candidate" if manifest.get("gate_passed") else "refused"

    def _next_version(self, home: Path) -> str:
        numbers = [int(p.name) for p in home.iterdir() if p.is_dir() and p.name.isdecimal()]
        return f"{max(numbers, default=0) + 1:04d}"

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


def _failed(model: ModelVersion) -> str:
    findings = (model.manifest.get("gate") or {}).get("findings", [])
    return ", ".join(f["rule"] for f in findings if not f["passed"]) or "not evaluated"
