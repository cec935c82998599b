"""Models in versioned folders, with one pointer to what serves and what is on trial beside it.

``models/<name>/<version>/`` holds weights (safetensors), tokenizer, ``README.md`` (model card),
``bom.json`` (CycloneDX ML-BOM) and ``manifest.json``; the pointer beside them says what serves
(:mod:`train.registry.pointer`). A version's files never change once it stands in its place.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from train.errors import GateRefusedError, StaleSubstrateError
from train.registry.folders import RegisteredVersion
from train.registry.lineage import removed_version
from train.registry.model_card import bill_of_materials, model_card
from train.registry.pointer import HistoryEntry, read_pointer
from train.registry.registry import AuditHook, Registry
from train.runs.order import ORDER
from train.substrate.selection import lost_items
from train.substrate.source import LearningSource
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError

_AT_HELD_OUT = ("minimum_gain", "minimum_agreement")
"""Rules by which a candidate that is no better may pass by luck: each is one more look at held-out tasks."""


class ModelVersion(RegisteredVersion):
    """One registered version of a model; its folder is one that any Hugging Face loader takes."""

    __slots__ = ()


class ModelRegistry(Registry[ModelVersion]):
    """The models of one installation."""

    kind = "model"
    command = "headrace train list"

    def __init__(
        self, root: Path, *, source: LearningSource | None = None, audit: AuditHook | None = None
    ) -> None:
        super().__init__(root, audit=audit)
        self._source = source

    def _made(
        self, name: str, version: str, folder: Path, status: str, manifest: Mapping[str, Any]
    ) -> ModelVersion:
        return ModelVersion(name, version, folder, status, manifest)

    def label_of(self, folder: Path) -> str | None:
        """Return ``name@version`` of a registered model's folder; None for any other folder."""
        folder = folder.resolve()
        inside = folder.parent.parent == self._root.resolve()
        found = inside and (folder / "manifest.json").is_file()
        return f"{folder.parent.name}@{folder.name}" if found else None

    def register(
        self, name: str, model: Path, manifest: Mapping[str, Any], *, passed: bool
    ) -> ModelVersion:
        """Move a trained model's folder into the registry as a new version.

        Args:
            name: of the model.
            model: folder with weights and tokenizer; it is moved.
            manifest: of the run that made it; weights hash and version are added.
            passed: whether its gate let it through.

        Raises:
            ConfigurationError: versions of this name are of another kind; the folder stays where it is.
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
        """Bring a model's folder into its place, with its card and its bill of materials."""
        self.require_kind(name, str(facts.get("makes", "policy")))

        def fill(folder: Path, manifest: Mapping[str, Any]) -> None:
            papers = {"README.md": model_card(manifest), "bom.json": bill_of_materials(manifest)}
            bring(model, folder)
            for paper, text in papers.items():
                (folder / paper).write_text(text, encoding="utf-8")

        moved = bring is shutil.move
        return self._place(name, facts, fill, taken=model if moved else None)

    def require_kind(self, name: str, makes: str) -> None:
        """Refuse to put a reward model among the versions of one that serves, or the reverse.

        Raises:
            ConfigurationError: the name holds versions of another kind.
        """
        others = {version.manifest.get("makes", "policy") for version in self.versions(name)}
        if others - {makes}:
            raise ConfigurationError(
                f"{name} holds versions of another kind ({', '.join(sorted(others))}) than a {makes}: "
                "give it a name of its own (--model NAME)"
            )

    def adopt(self, name: str, model: Path, *, actor: str, reason: str) -> ModelVersion:
        """Register a copy of a model as the first version of a name, and let it serve.

        A registered version keeps its manifest under the new name, so consent and lineage follow
        it. Any other model passes as one that was not trained here.

        Raises:
            ConfigurationError: a version of this name serves already, versions of it are of another kind,
                or the folder is a copy of a version whose origin nobody can tell.
            GateRefusedError: it is a registered version that did not pass its gate.
            StaleSubstrateError: it is one that learned from something withdrawn.
        """
        label = self.label_of(model)
        if label is not None:
            own, _, version = label.partition("@")
            known = self._servable(own, version)
            self._require_gate(known, None)
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
        _require_made_elsewhere(model)
        for path in model.rglob("*") if model.is_dir() else ():
            if not path.is_file() and (path.is_symlink() or not path.is_dir()):
                raise ConfigurationError(
                    f"{path} is no file, so it cannot be copied; leave it out of the model's folder"
                )
        if model.is_dir() and not any(model.glob("*.safetensors")):
            raise ConfigurationError(
                f"{model} holds no *.safetensors; other weights may be programs: convert them first"
            )
        self._require_other_weights(model)

    def _require_other_weights(self, model: Path) -> None:
        """Refuse a copy of a version's weights that says no more what they learned from.

        Raises:
            ConfigurationError: naming the version.
        """
        weights = weights_hash(model)
        for one in (version for name in self.names() for version in self.versions(name)):
            trained_here = (one.path / "items.parquet").exists() or one.manifest.get("run_id")
            unchanged = one.manifest.get("base_weights_hash") == weights  # it learned nothing
            if trained_here and not unchanged and one.manifest.get("weights_hash") == weights:
                raise ConfigurationError(
                    f"{model} has the same weights as {one.label}, which was trained here; "
                    "use that version's own folder in models/, which knows what it learned from"
                )

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
            count += any(_looked(finding) for finding in findings)
        return count

    def _servable(self, name: str, version: str) -> ModelVersion:
        wanted = self.get(name, version)
        if wanted.manifest.get("makes", "policy") != "policy":
            raise ConfigurationError(
                f"{wanted.label} is a {wanted.manifest['makes']}: it scores answers and gives none"
            )
        self._require_consent(wanted)
        return wanted

    def _require_gate(self, wanted: ModelVersion, override: str | None) -> None:
        if not wanted.manifest.get("gate_passed") and not (override and override.strip()):
            raise GateRefusedError(
                f"{wanted.label} did not pass its gate ({_failed(wanted)}); train a better one, "
                "or promote it with --override and a reason, which is audited"
            )

    def _require_consent(self, wanted: ModelVersion) -> None:
        """Refuse what learned, itself or through what it began with, from something withdrawn."""
        stale = self._stale(wanted)
        if stale is not None:
            raise StaleSubstrateError(
                f"{stale}; build the substrate again and train anew from what is clean"
            )

    def require_permitted(self, folder: Path) -> None:
        """Refuse a registered model, to begin with or to score by, that learned from something withdrawn.

        Raises:
            StaleSubstrateError: it did, itself or through what it was made with.
            ConfigurationError: it was trained here and is no registered version, so nobody could tell.
        """
        name, _, version = (self.label_of(folder) or "").partition("@")
        if name:
            self._require_consent(self.get(name, version))
        else:
            _require_made_elsewhere(folder)
            self._require_other_weights(folder)

    def require_scorer(self, folder: Path) -> None:
        """Refuse a registered reward model that may not teach another model.

        Raises:
            StaleSubstrateError: it learned from something withdrawn.
            ConfigurationError: it was trained here and is no registered version, so nobody could tell; or it did not
                pass its gate, so its scores may be no better than chance.
        """
        self.require_permitted(folder)
        name, _, version = (self.label_of(folder) or "").partition("@")
        scorer = self.get(name, version) if name else None
        if scorer is not None and not scorer.manifest.get("gate_passed"):
            raise ConfigurationError(
                f"{scorer.label} did not pass its gate ({_failed(scorer)}), so no model may learn by its "
                "scores; name a version that passed in options.reward_model, or train a better one"
            )

    def _stale(self, wanted: ModelVersion) -> str | None:
        """Say what a version learned that may no longer be learned from; None when nothing."""
        gone = "may no longer be learned from (consent withdrawn, erased or expired)"
        if lost := self._lost_items(wanted):
            return f"{wanted.label} learned from {lost} items that {gone}"
        rest, seen = _made_with(wanted.manifest), {wanted.label}
        while rest:
            label, how = rest.pop(0)
            if label in seen:
                continue
            seen.add(label)
            name, _, version = label.partition("@")
            one = self._found(name, version) if name and version else None
            if one is not None:
                if lost := self._lost_items(one):
                    return f"{label} learned from {lost} items that {gone}, and {wanted.label} {how} it"
                rest += _made_with(one.manifest)
                continue
            removed = None if self._source is None else removed_version(self._source, label)
            if removed is not None and removed.is_stale:
                had = f"{label}, whose folder was removed, had a substrate with items that {gone}"
                return f"{had}, and {wanted.label} {how} it"
            if removed is not None:
                rest += _made_with(asdict(removed))
        return None

    def _lost_items(self, one: ModelVersion) -> int:
        path = one.path / "items.parquet"
        if self._source is None or not path.exists():
            return 0
        return len(lost_items(self._source, path, one.manifest["data"]["purposes"]))

    def _recorded(self, name: str) -> Mapping[str, str]:
        if self._source is None:
            return {one.version: one.status for one in self.versions(name)}
        known = self._source.query(
            "SELECT version, status FROM models_latest WHERE name = ?", parameters=[name]
        )
        return {row["version"]: row["status"] for row in known.to_pylist()}

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

    def _record_removed(self, name: str, version: str, entry: HistoryEntry) -> None:
        if self._source is None:
            return
        found = self._source.query(
            "SELECT * FROM models_latest WHERE name = ? AND version = ?", parameters=[name, version]
        )
        now = {"recorded_at": datetime.now(UTC), "status": "retired"}
        said = {"reason": entry.reason, "actor": entry.actor}
        self._source.append_rows("models", [row | now | said for row in found.to_pylist()])


def weights_hash(folder: Path) -> str:
    """Return the hash of all weight files of a model folder, in the order of their names."""
    digest = blake2b(digest_size=20)
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return "b2:" + digest.hexdigest()


def _require_made_elsewhere(model: Path) -> None:
    """Refuse what a training here left outside of the registry.

    Raises:
        ConfigurationError: naming what gives it away.
    """
    places = (
        model.resolve(),
        *model.resolve().parents,
    )  # an adapter's folder lies in its version's
    if any((place / "items.parquet").exists() for place in places):
        raise ConfigurationError(
            f"{model} has an items.parquet, so it is a copy or a part of a version that was trained here; "
            "use the version's own folder in models/, which knows what it learned from"
        )
    if (model / "trainer_state.json").exists():
        raise ConfigurationError(
            f"{model} holds trainer_state.json, so it is a checkpoint of a training; finish the "
            "run with `headrace train run --resume`, and use the version that it becomes"
        )
    run = next((place for place in places[1:] if (place / ORDER).is_file()), None)
    if run is not None:
        raise ConfigurationError(
            f"{model} is what run {run.name} made and did not register; let it be judged with "
            f"`headrace train run --resume {run.name}`, and use the version that it becomes"
        )


def _made_with(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the labels of the models that one was made with, and what they were to it."""
    parts = (("base", "began with"), ("reward_model", "was scored by"))
    return [(str(manifest[part]), how) for part, how in parts if manifest.get(part)]


def _failed(model: ModelVersion) -> str:
    findings = (model.manifest.get("gate") or {}).get("findings", [])
    return ", ".join(f["rule"] for f in findings if not f["passed"]) or "not evaluated"


def _looked(finding: Mapping[str, Any]) -> bool:
    """Tell whether a rule looked at held-out tasks; without any it has measured nothing."""
    return finding["rule"] in _AT_HELD_OUT and finding.get("measured") is not None
