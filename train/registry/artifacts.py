"""Artefacts in versioned folders, moved, tried and taken back as models are.

``artifacts/<name>/<version>/`` holds ``artifact.json``, the content as the gateway reads it, and
``manifest.json`` with where each part of it comes from. Both stay as they are once they stand in
their place; only an erasure takes out of them what was drawn from an erased person's steps.
None is registered, live or a canary before :mod:`train.inspection` has looked at it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from train.errors import GateRefusedError, StaleSubstrateError
from train.inspection.evidence import PURPOSE
from train.inspection.inspection import FindPersonalData, Objection, inspect, plain_data
from train.registry.exams import ExamRecord, append_exam, exam_of, look_of, read_exams
from train.registry.folders import RegisteredVersion
from train.registry.pointer import HistoryEntry, Pointer, read_pointer
from train.registry.registry import AuditHook, Registry
from train.substrate.source import LearningSource
from trajectory.artifact import Artifact, ArtifactSpec
from trajectory.canonical import canonical_json, content_hash
from trajectory.errors import ConfigurationError
from trajectory.files import READABLE, damaged_file, read_file, replace_file

CONTENT = "artifact.json"
_WHOLE = ""
"""Stands in a manifest's provenance for the whole content; its other keys are ids of facts."""
_SAME = ("content_hash", "description", "gate_passed")
"""Parts of the manifest by which a document is known again."""
_SURFACES = {"tools": "tool_schema"}
"""Decisions have another word for it."""
_INTERVENTION = "SELECT begun_at, status FROM interventions_latest WHERE intervention_id = $id"
_ELIGIBLE = """
WITH allowed AS (
    SELECT step_id, trajectory_id FROM eligible_steps WHERE tenant_id = $tenant
    AND list_contains(purposes, $purpose) AND step_id IN (SELECT unnest($steps::VARCHAR[]))
), people AS (
    SELECT trajectory_id, list_sort(list_distinct(flatten(list(subjects)))) AS subjects
    FROM governance WHERE tenant_id = $tenant
    AND trajectory_id IN (SELECT trajectory_id FROM allowed) GROUP BY trajectory_id
)
SELECT step_id, trajectory_id, coalesce(subjects, []) AS subjects
FROM allowed LEFT JOIN people USING (trajectory_id)
"""


class ArtifactVersion(RegisteredVersion):
    """One registered version of an artefact."""

    __slots__ = ()

    @property
    def content(self) -> ArtifactSpec | None:
        """What it says; None where an erasure took all of it."""
        try:
            value = json.loads(read_file(self.path / CONTENT))
            return None if value is None else ArtifactSpec.model_validate(value)
        except (OSError, ValueError, RecursionError) as error:
            remedy = "restore it, or remove that version's folder"
            raise damaged_file(self.path / CONTENT, error, remedy) from None

    @property
    def evidence(self) -> list[str]:
        """Ids of the steps that it was drawn from."""
        return _gathered(self.manifest, "steps")

    @property
    def subjects(self) -> list[str]:
        """Keyed pseudonyms of the people whom these steps concern."""
        return _gathered(self.manifest, "subjects")

    @property
    def exam(self) -> ExamRecord | None:
        """What its newest exam found; None where it took none."""
        return exam_of(read_exams(self.path.parent), self.manifest["content_hash"])


@dataclass(frozen=True, slots=True)
class ForgottenParts:
    """What was taken out of artefacts."""

    facts: int
    versions: tuple[str, ...]
    """``name@version`` of all that were changed."""


class ArtifactRegistry(Registry[ArtifactVersion]):
    """The artefacts of one installation."""

    kind = "artifact"
    command = "headrace artifact list"
    may_be_absent = True

    def __init__(
        self,
        root: Path,
        *,
        source: LearningSource,
        audit: AuditHook | None = None,
        find: FindPersonalData = plain_data,
    ) -> None:
        """Open the registry.

        Args:
            root: its folder.
            source: the lake with the evidence.
            audit: called before a change counts.
            find: finds personal data and secrets in the texts of artefacts.
        """
        super().__init__(root, audit=audit)
        self._source = source
        self._find = find

    def inspect(self, document: Artifact) -> list[Objection]:
        """Return what speaks against a document that is not registered."""
        name = document.metadata.name
        return self._objections(name, document.spec, document.metadata.description)

    def inspect_version(self, one: ArtifactVersion) -> list[Objection]:
        """Return what speaks against a version now; evidence and owners' texts may have changed."""
        content = one.content
        if content is None:
            return []
        return self._objections(one.name, content, one.manifest["description"])

    def _objections(self, name: str, spec: ArtifactSpec, about: str | None) -> list[Objection]:
        pointer = read_pointer(self._root / name)
        serving = None if pointer is None else self._found(name, pointer.version)
        live = None if serving is None else serving.content
        return inspect(spec, self._source, live=live, about=about, find=self._find)

    def register(
        self, document: Artifact, *, actor: str, override: str | None = None
    ) -> ArtifactVersion:
        """Register a document as the next version of its name; one that a version says already is that version.

        Args:
            document: what it says, and where it comes from.
            actor: who registers it.
            override: why a person lets it pass in spite of objections; audited.

        Raises:
            StaleSubstrateError: a step of its evidence may not be drawn from.
            GateRefusedError: the inspection objects, and nobody lets it pass.
            ConfigurationError: earlier versions are of another kind or another tenant's.
        """
        with self._source.lease():  # an erasure waits, and then takes its facts out too
            placed, is_new = self._placed(document, override)
        if is_new and self._audit is not None:
            spec = document.spec
            detail = {"actor": actor, "surface": spec.surface, "tenant": spec.tenant}
            self._audit("artifact.add", placed.label, detail)
        return placed

    def _placed(self, document: Artifact, override: str | None) -> tuple[ArtifactVersion, bool]:
        """Return the version of a document, and whether it is new."""
        spec, name = document.spec, document.metadata.name
        found = self._eligible(spec.tenant, spec.all_evidence)
        if lost := len(spec.all_evidence - found.keys()):
            raise StaleSubstrateError(
                f"{name}: {lost} of {len(spec.all_evidence)} steps of its evidence may not be drawn "
                f"from: the tenant has no such step, or it does not allow the purpose {PURPOSE} "
                "(`headrace policy explain STEP`); leave them out, and what was drawn from them"
            )
        objections = self.inspect(document)
        self._require_passed(name, objections, override)
        facts = () if spec.memory is None else spec.memory.facts
        drawn = {_WHOLE: spec.evidence, **{fact.id: fact.evidence for fact in facts}}
        content = _content_of(spec)
        manifest = {
            "surface": spec.surface,
            "tenant": spec.tenant,
            "description": document.metadata.description,
            "decision": spec.decision,
            "proposer": spec.proposer,
            "licence": spec.licence,
            "purposes": [PURPOSE] if spec.all_evidence else [],
            "provenance": {key: _origin(found, steps) for key, steps in drawn.items() if steps},
            "content_hash": spec_hash(spec),
            "gate_passed": not objections,
            "objections": sorted({one.rule for one in objections}),
        }

        def fill(folder: Path, _manifest: Mapping[str, Any]) -> None:
            folder.mkdir()
            replace_file(folder / CONTENT, canonical_json(content), READABLE)

        with self._changing(name, new=True):
            self.require_same_kind(name, spec)
            for known in reversed(self.versions(name)):
                told = known.manifest
                if all(told.get(key) == manifest[key] for key in _SAME):
                    return known, False
            return self._place(name, manifest, fill), True

    def look(self, name: str, spec: ArtifactSpec) -> int:
        """Return the how-manieth candidate this is at held-out tasks since one passed or what serves changed."""
        pointer = read_pointer(self._root / name)
        since = "" if pointer is None else pointer.since
        return look_of(read_exams(self._root / name), spec_hash(spec), since)

    def note_exam(self, name: str, found: ExamRecord) -> None:
        """Keep what an exam of a candidate found, whether or not it is registered."""
        with self._changing(name, new=True):
            append_exam(self._root / name, found)

    def require_same_kind(self, name: str, spec: ArtifactSpec) -> None:
        """Refuse to let one name mean two things: a rollback must give back the same kind.

        Raises:
            ConfigurationError: versions of this name are of another kind or another tenant's.
        """
        for one in self.versions(name)[-1:]:
            before = one.manifest["surface"], one.manifest["tenant"]
            if before != (spec.surface, spec.tenant):
                of = "everybody" if before[1] is None else f"tenant {before[1]}"
                raise ConfigurationError(
                    f"{one.label} is {before[0]} for {of}; give what is something else another name"
                )

    def _eligible(self, tenant: str | None, steps: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return those of the steps that may be drawn from, with trajectory and people."""
        wanted = sorted(steps)
        if not wanted:
            return {}
        rows = self._source.query(
            _ELIGIBLE, parameters={"tenant": tenant, "purpose": PURPOSE, "steps": wanted}
        ).to_pylist()
        return {row["step_id"]: row for row in rows}

    def withdraw(self, name: str, version: str, *, actor: str, reason: str) -> ArtifactVersion:
        """Let the version that serves do so no more, and none in its place.

        Raises:
            ServingChangedError: another version serves, or none.
        """
        with self._changing(name):
            self._require_serving(name, version)
            serving, pointer = self.live(name), read_pointer(self._root / name)
            if serving is None or pointer is None:
                raise ConfigurationError(f"no version of {name!r} is live")
            now = datetime.now(UTC).isoformat()
            entry = HistoryEntry(now, "rollback", "", serving.version, actor, reason)
            self._change(
                name, Pointer("", now, serving.version, pointer.trials, pointer.share), entry
            )
            self._record(serving, status="retired", reason=reason, actor=actor)
            return serving

    def sweep(self) -> ForgottenParts:
        """Take out of every version what was drawn from steps that the lake holds no longer.

        Facts go one by one; any other content goes as a whole, and such a version never serves
        again. Erasure and the retention sweep end with this; done again it changes nothing.
        """
        facts, changed = 0, []
        for name in self.names():
            with self._changing(name):
                for one in self.versions(name):
                    going = self._lost_parts(one)
                    if going:
                        facts += self._take_out(one, going)
                        changed.append(one.label)
        return ForgottenParts(facts, tuple(changed))

    def _lost_parts(self, one: ArtifactVersion) -> set[str]:
        """Return the parts of a version with a step that is gone."""
        steps = one.evidence
        if not steps:
            return set()
        found = self._source.query(
            "SELECT DISTINCT step_id FROM governance WHERE tenant_id = ? "
            "AND step_id IN (SELECT unnest(?::VARCHAR[]))",
            parameters=[one.manifest["tenant"], steps],
        )
        left = {*found["step_id"].to_pylist()}
        return {
            key
            for key, part in one.manifest["provenance"].items()
            if not left.issuperset(part["steps"])
        }

    def _take_out(self, one: ArtifactVersion, going: set[str]) -> int:
        """Rewrite one version without some parts; return how many facts went. Content goes first."""
        content = one.content
        facts = () if content is None or content.memory is None else content.memory.facts
        kept = tuple(fact for fact in facts if fact.id not in going and _WHOLE not in going)
        if content is not None and content.memory is not None and kept:
            memory = content.memory.model_copy(update={"facts": kept})
            content = content.model_copy(update={"memory": memory})
            value = content.model_dump(mode="json", exclude_none=True)
        else:
            value = None
        replace_file(one.path / CONTENT, canonical_json(value), READABLE)
        provenance = one.manifest["provenance"]
        left = {} if value is None else {k: v for k, v in provenance.items() if k not in going}
        # Who wrote the description had read what is gone.
        said = "" if value is None else one.manifest["description"]
        now = datetime.now(UTC).isoformat()
        erased = {"provenance": left, "description": said, "erased_at": now}
        replace_file(
            one.path / "manifest.json", canonical_json({**one.manifest, **erased}), READABLE
        )
        fresh = self.get(one.name, one.version)
        self._record(fresh, status=fresh.status, reason="erasure")
        return len(facts) - len(kept)

    def _made(
        self, name: str, version: str, folder: Path, status: str, manifest: Mapping[str, Any]
    ) -> ArtifactVersion:
        return ArtifactVersion(name, version, folder, status, manifest)

    def _servable(self, name: str, version: str) -> ArtifactVersion:
        wanted = self.get(name, version)
        stale = self._stale(wanted)
        if stale is not None:
            raise StaleSubstrateError(f"{stale}; register a version that does without")
        return wanted

    def _require_gate(self, wanted: ArtifactVersion, override: str | None) -> None:
        self._require_passed(wanted.label, self.inspect_version(wanted), override)

    def _require_passed(
        self, about: str, objections: Sequence[Objection], override: str | None
    ) -> None:
        """Refuse what the inspection objects to; a person's reason is audited with the rules."""
        if not objections:
            return
        rules = sorted({one.rule for one in objections})
        if not (override and override.strip()):
            told = "\n".join(f"  {one.where}: {one.what} ({one.rule})" for one in objections)
            raise GateRefusedError(
                f"{about} does not pass its inspection:\n{told}\n`headrace evolve inspect` says what "
                "to do about each; or give --override and a reason, which is audited"
            )
        if self._audit is not None:
            self._audit("artifact.override", about, {"rules": rules, "reason": override})

    def _stale(self, wanted: ArtifactVersion) -> str | None:
        if wanted.content is None:
            return f"{wanted.label} holds nothing any more: it was drawn from what was erased"
        steps = wanted.evidence
        if lost := len({*steps} - self._eligible(wanted.manifest["tenant"], steps).keys()):
            return (
                f"{wanted.label} was drawn from {lost} steps that may no longer be drawn from "
                "(consent withdrawn, erased or expired)"
            )
        return None

    def _recorded(self, name: str) -> Mapping[str, str]:
        known = self._source.query(
            "SELECT version, status FROM artifacts_latest WHERE name = ?", parameters=[name]
        )
        return {row["version"]: row["status"] for row in known.to_pylist()}

    def _record(
        self,
        one: ArtifactVersion,
        *,
        status: str,
        reason: str | None = None,
        actor: str | None = None,
    ) -> None:
        told = one.manifest
        row = {
            "name": one.name,
            "version": one.version,
            "recorded_at": datetime.now(UTC),
            "surface": told["surface"],
            "for_tenant": told["tenant"],
            "path": f"artifacts/{one.name}/{one.version}",
            "status": status,
            "content_hash": told["content_hash"],
            "decision_id": told["decision"],
            "proposer": told["proposer"],
            "licence": told["licence"],
            "evidence": one.evidence,
            "purposes": told["purposes"],
            "reason": reason,
            "actor": actor,
        }
        self._intervene(row)  # first: a row that is missing is noticed
        self._source.append_rows("artifacts", [row])

    def _record_removed(self, name: str, version: str, entry: HistoryEntry) -> None:
        found = self._source.query(
            "SELECT * FROM artifacts_latest WHERE name = ? AND version = ?",
            parameters=[name, version],
        )
        now = {"recorded_at": datetime.now(UTC), "status": "retired"}
        for row in found.to_pylist():
            fresh = {**row, **now, "reason": entry.reason, "actor": entry.actor}
            self._intervene(fresh)
            self._source.append_rows("artifacts", [fresh])

    def _intervene(self, row: Mapping[str, Any]) -> None:
        """Note a trial's beginning and its end, and a change of what is live, as interventions."""
        if row["actor"] is None:  # registered, or an erasure took something out: nothing moved
            return
        label = f"{row['name']}@{row['version']}"
        name = f"a-{label}"
        found = self._source.query(_INTERVENTION, parameters={"id": name}).to_pylist()
        begun = found[0]["begun_at"] if found and found[0]["status"] == "begun" else None
        if row["status"] not in ("canary", "live") and begun is None:
            return
        fresh = {
            "intervention_id": name,
            "recorded_at": row["recorded_at"],
            "decision_id": row["decision_id"] or "",
            "surface": _SURFACES.get(row["surface"], row["surface"]),
            "subject": f"artifact {label}",
            "status": "begun" if row["status"] == "canary" else "ended",
            "begun_at": begun or row["recorded_at"],
            "ended_at": None if row["status"] == "canary" else row["recorded_at"],
            "actor": row["actor"],
            "met": None,
        }
        self._source.append_rows("interventions", [fresh])


def spec_hash(spec: ArtifactSpec) -> str:
    """Return the hash of what an artefact says and where it comes from."""
    return content_hash(_content_of(spec))


def _content_of(spec: ArtifactSpec) -> dict[str, Any]:
    content: dict[str, Any] = spec.model_dump(mode="json", exclude_none=True)
    return content


def _origin(found: Mapping[str, Mapping[str, Any]], steps: Iterable[str]) -> dict[str, list[str]]:
    """Return where one part comes from: steps, and the people in their trajectories."""
    rows = [found[step] for step in sorted({*steps})]
    return {
        "steps": [row["step_id"] for row in rows],
        "subjects": sorted({subject for row in rows for subject in row["subjects"]}),
    }


def _gathered(manifest: Mapping[str, Any], what: str) -> list[str]:
    return sorted({each for part in manifest["provenance"].values() for each in part[what]})
