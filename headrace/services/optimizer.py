"""Searches for a better text of an artefact, gives what was found its exam, and registers it if it passes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from evolve.policy import Exam
    from evolve.proposers.optimizer import SearchBudget, SearchOutcome
    from headrace.app.context import AppContext
    from train.inspection.inspection import Objection
    from train.registry.artifacts import ArtifactVersion
    from train.registry.exams import ExamRecord
    from train.substrate.source import Progress
    from trajectory.artifact import Artifact


@dataclass(frozen=True, slots=True)
class ReflectionRoute:
    """Where the reflection model is asked."""

    route: str
    """Of the gateway that runs here."""
    model: str
    key: str
    """Client key."""


@dataclass(frozen=True, slots=True)
class Optimized:
    """What came of a search."""

    search: "SearchOutcome"
    document: "Artifact | None" = None
    """The candidate; None where no text did better on the train side."""
    objections: "tuple[Objection, ...]" = ()
    """With any, it takes no exam."""
    exam: "ExamRecord | None" = None
    registered: "ArtifactVersion | None" = None

    @property
    def outcome(self) -> str:
        """In a few words."""
        if self.document is None:
            return "no text solved more of the tasks"
        if self.objections:
            return "refused by its inspection"
        return "refused by its exam" if self.registered is None else "registered"


def optimize(
    app: "AppContext",
    seed: "Artifact",
    reflection: ReflectionRoute,
    exam: "Exam",
    budget: "SearchBudget",
    *,
    tasks: int,
    decision: str | None,
    progress: "Progress",
) -> Optimized:
    """Search, inspect, examine, and register.

    Args:
        app: the home.
        seed: the document to begin with.
        reflection: who writes texts.
        exam: names model and substrate, and judges on held-out tasks.
        budget: when the search ends.
        tasks: of the train side that are tried at most.
        decision: the decision of ``headrace evolve`` that asks for it.
        progress: told how far it is.

    Raises:
        ConfigurationError: the exam has no substrate, the seed no tenant or no text, its name is that of another
            kind or tenant, or gepa is missing.
        EmptyRunError: too few tasks may be read.
        WorkError: the reflection model did not answer.
    """
    from evolve.proposers.optimizer import require_gepa, search, search_tasks, texts_of
    from headrace.services.changes import artifact_registry
    from headrace.services.exams import examine_content, examined_model, examined_substrate
    from train.errors import EmptyRunError
    from train.evaluation.held_out import LEAST
    from train.runs.folders import conversations_folder
    from train.substrate.manifest import load_items
    from trajectory.artifact import MOST_STEPS

    require_gepa()
    spec, name = seed.spec, seed.metadata.name
    texts_of(spec)
    if spec.tenant is None:
        raise ConfigurationError(
            f"{name} is for everybody, and what a search reads is one tenant's: name its tenant"
        )
    artifacts = artifact_registry(app, app.user.name)
    artifacts.require_same_kind(name, spec)
    substrate, model = examined_substrate(app, exam), examined_model(app, exam)
    if substrate is None:
        raise ConfigurationError(
            "promotion.ladder.exam.substrate names the tasks: a search tries those of its train side, "
            "the exam those that are held out"
        )
    known = search_tasks(
        app.lake,
        load_items(substrate),
        exam.evaluation.model_copy(update={"tasks": tasks}),
        tenant=spec.tenant,
        most_steps=MOST_STEPS - len(spec.evidence),
    )
    if len(known.found.tasks) < LEAST:
        why = ", ".join(f"{reason} {count}" for reason, count in known.found.fallen.items())
        raise EmptyRunError(
            f"{substrate.name}: {len(known.found.tasks)} tasks of {spec.tenant} on the train side may be "
            f"read and tried, at least {LEAST} are needed (not: {why}); only items whose steps all allow "
            "the purpose evolve are read"
        )
    app.audit.append(
        actor=app.user.name,
        action="artifact.optimize",
        subject=name,
        detail={
            "route": reflection.route,
            "model": reflection.model,
            "substrate": f"{substrate.name}@{substrate.version}",
            "tasks": len(known.found.tasks),
        },
    )
    with conversations_folder(app.home.create().runs) as folder:
        found = search(
            spec, known, model.path, exam.evaluation, _reflect(app, reflection),
            budget=budget, folder=folder, progress=progress,
        )  # fmt: skip
    if found.spec is None:
        return Optimized(found)
    candidate = found.spec.model_copy(update={"decision": decision})
    document = seed.model_copy(update={"spec": candidate})
    objections = tuple(artifacts.inspect(document))
    if objections:
        return Optimized(found, document, objections)
    live = artifacts.live(name) if name in artifacts.names() else None
    control = "" if live is None else live.version
    judged = examine_content(app, name, candidate, control=control, exam=exam, progress=progress)
    placed = artifacts.register(document, actor=app.user.name) if judged.passed else None
    return Optimized(found, document, (), judged, placed)


def seed_of(app: "AppContext", name: str, file: Path | None) -> "Artifact":
    """Return the document that a search begins with: a file's, or the live version's.

    Raises:
        ConfigurationError: nothing of that name is live, or the file is about another one.
    """
    from headrace.services.changes import artifact_registry
    from trajectory.artifact import Artifact
    from trajectory.documents.document import load_document

    if file is not None:
        document = load_document(Artifact, file)
        if document.metadata.name != name:
            raise ConfigurationError(f"{file} is about {document.metadata.name!r}, not {name!r}")
        return document
    artifacts = artifact_registry(app, app.user.name)
    live = artifacts.live(name) if name in artifacts.names() else None
    if live is None or live.content is None:
        raise ConfigurationError(
            f"no version of {name!r} is live, so give the text to begin with: --from FILE"
        )
    value = {
        "apiVersion": "headrace/v1",
        "kind": "Artifact",
        "metadata": {"name": name, "description": live.manifest["description"]},
        "spec": live.content.model_dump(mode="json", exclude_none=True),
    }
    return Artifact.model_validate(value)


def _reflect(app: "AppContext", reflection: ReflectionRoute) -> Callable[[str], str]:
    from headrace.app.gateway_client import as_it_runs, ask_model
    from headrace.app.installation import gateway_config

    config = as_it_runs(app.settings, gateway_config(app.settings, app.home))

    def reflect(prompt: str) -> str:
        return ask_model(config, reflection.route, reflection.key, reflection.model, prompt)

    return reflect
