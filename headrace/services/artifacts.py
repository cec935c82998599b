"""Versions of artefacts for the eye: what one says, what is known of it, and how two of them differ."""

import difflib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from train.registry.artifacts import ArtifactRegistry, ArtifactVersion
    from train.registry.exams import ExamRecord


def find_artifact(artifacts: "ArtifactRegistry", asked: str) -> "ArtifactVersion":
    """Return a version by NAME@VERSION; by NAME the live one, else the newest."""
    name, at, version = asked.partition("@")
    if at:
        return artifacts.get(name, version)
    if name not in artifacts.names():
        known = ", ".join(artifacts.names()) or "none"
        raise ConfigurationError(f"no artefact {name!r}; there are: {known}")
    return artifacts.live(name) or artifacts.versions(name)[-1]


def facts_of(one: "ArtifactVersion") -> dict[str, Any]:
    """Return what is known of a version: manifest, status, what it was drawn from, and its newest exam."""
    known = {name: value for name, value in one.manifest.items() if name != "provenance"}
    return {
        **known,
        "status": one.status,
        "evidence": one.evidence,
        "subjects": one.subjects,
        "exam": one.exam and asdict(one.exam),
    }


def exam_fields(found: "ExamRecord") -> dict[str, Any]:
    """Return what an exam found, in a few lines for the eye."""
    tried = found.tried
    return {
        "passed": found.passed,
        "at": found.at,
        "model": found.model,
        "compared with": found.control or "no artefact",
        "held-out tasks": None if tried is None else f"{tried.tasks} of {found.substrate}",
        "solved": None
        if tried is None
        else f"{tried.base:.1%} before, {tried.candidate:.1%} with it",
        "gain": None
        if tried is None
        else f"{100 * tried.gain:+.1f} points [{100 * tried.low:+.1f}, {100 * tried.high:+.1f}]; "
        f"the gate reads {100 * tried.low_at_look:+.1f} (candidate {found.look})",
        "findings": "; ".join(found.findings),
    }


def history_of(artifacts: "ArtifactRegistry", one: "ArtifactVersion") -> list[dict[str, Any]]:
    """Return what became of a version, by whom and why."""
    return [
        {"at": entry.at, "action": entry.action, "actor": entry.actor, "reason": entry.reason}
        for entry in artifacts.history(one.name)
        if entry.version == one.version
    ]


def content_of(one: "ArtifactVersion") -> dict[str, Any] | None:
    """Return what a version says; None where an erasure took all of it."""
    content = one.content
    return None if content is None else content.model_dump(mode="json", exclude_none=True)


def text_of(one: "ArtifactVersion") -> str:
    """Return what a version says as YAML."""
    import yaml

    content = content_of(one)
    if content is None:
        return "erased: all of it was drawn from an erased person's steps"
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)).rstrip()


def difference_of(before: "ArtifactVersion", after: "ArtifactVersion") -> list[str]:
    """Return what differs between two versions as lines of a unified diff; none where nothing does."""
    first, second = (text_of(one).splitlines() for one in (before, after))
    return list(difflib.unified_diff(first, second, before.label, after.label, lineterm="", n=2))
