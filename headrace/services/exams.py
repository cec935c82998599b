"""Exams of candidates, as a ladder asks for them: a model that serves here answers, without a change and with it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from evolve.ladder import Examiner, ExamResult
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evolve.policy import Exam
    from evolve.trial_files import Surface
    from headrace.app.context import AppContext
    from train.evaluation.evaluate import Comparison
    from train.evaluation.gate import RuleOutcome
    from train.registry.exams import ExamRecord, PairedGain
    from train.registry.versions import ModelVersion
    from train.substrate.manifest import SubstrateManifest
    from train.substrate.source import Progress
    from trajectory.artifact import ArtifactSpec


def examiner(app: "AppContext") -> Examiner:
    """Return what gives candidates of this home their exam."""

    def examine(
        kind: "Surface", name: str, version: str, *, control: str, exam: "Exam"
    ) -> ExamResult:
        if kind == "model":
            return _model_exam(app, name, version, control, exam)
        return _artifact_exam(app, name, version, control, exam)

    return examine


def _model_exam(
    app: "AppContext", name: str, version: str, control: str, exam: "Exam"
) -> ExamResult:
    from headrace.cli.train import registry
    from train.evaluation.gate import judge_safety
    from train.evaluation.safety import compare_safety

    if exam.safety is None:  # on held-out tasks it was evaluated when it was trained
        return ExamResult(True, ())
    models = registry(app)
    before, after = models.get(name, control), models.get(name, version)
    return _result(judge_safety(exam.gate, compare_safety(exam.safety, before.path, after.path)))


def _artifact_exam(
    app: "AppContext", name: str, version: str, control: str, exam: "Exam"
) -> ExamResult:
    from headrace.cli import artifact

    one = artifact.registry(app).get(name, version)
    if one.content is None:
        raise ConfigurationError(
            f"{one.label} holds nothing any more: it was drawn from what was erased"
        )
    found = examine_content(app, name, one.content, control=control, exam=exam)
    return ExamResult(found.passed, found.findings)


def examine_content(
    app: "AppContext",
    name: str,
    content: "ArtifactSpec",
    *,
    control: str,
    exam: "Exam",
    progress: "Progress | None" = None,
) -> "ExamRecord":
    """Give what an artefact says its exam against what serves, and keep what was found.

    Args:
        app: the home.
        name: of the artefact.
        content: the candidate's; it need not be registered.
        control: version that it is compared with; empty for none.
        exam: what is asked.
        progress: told how far it is.

    Raises:
        ConfigurationError: no model is named, or none of that name serves.
        EmptyRunError: too few held-out tasks are of its tenant.
        StaleSubstrateError: the substrate holds what may no longer be learned from.
    """
    from headrace.cli import artifact
    from train.evaluation.artifact_exam import examine_artifact
    from train.evaluation.held_out import held_out_tasks
    from train.registry.artifacts import spec_hash
    from train.registry.exams import ExamRecord
    from train.runs.folders import conversations_folder
    from train.substrate.manifest import load_items
    from train.substrate.source import silent

    artifacts = artifact.registry(app)
    serving = artifacts.get(name, control).content if control else None
    model, substrate = examined_model(app, exam), examined_substrate(app, exam)
    evidence = content.all_evidence | (serving.all_evidence if serving else frozenset())
    with artifacts.examining(name):
        look = artifacts.look(name, content)
        with conversations_folder(app.home.create().runs) as folder:
            found = examine_artifact(
                content,
                serving=serving,
                model=model.path,
                tasks=None
                if substrate is None
                else held_out_tasks(
                    app.lake, load_items(substrate), exam.evaluation, evidence=evidence
                ),
                evaluation=exam.evaluation,
                safety=exam.safety,
                gate=exam.gate,
                reports=folder,
                look=look,
                progress=progress or silent,
            )
        result = _result(found.verdict.findings)
        record = ExamRecord(
            at=datetime.now(UTC).isoformat(),
            content_hash=spec_hash(content),
            control=control,
            model=model.label,
            substrate=None if substrate is None else f"{substrate.name}@{substrate.version}",
            look=look,
            passed=result.passed,
            findings=result.findings,
            tried=None if found.comparison is None else _gain(found.comparison),
        )
        artifacts.note_exam(name, record)
    return record


def examined_model(app: "AppContext", exam: "Exam") -> "ModelVersion":
    """Return the model that is given artefacts.

    Raises:
        ConfigurationError: none is named, or none of that name serves.
    """
    from headrace.cli import train

    if exam.model is None:
        raise ConfigurationError(
            "an exam of an artefact needs promotion.ladder.exam.model: the model that is given it"
        )
    model = train.registry(app).live(exam.model)
    if model is None:
        raise ConfigurationError(
            f"exam.model: no version of {exam.model!r} serves (`headrace train list`)"
        )
    return model


def examined_substrate(app: "AppContext", exam: "Exam") -> "SubstrateManifest | None":
    """Return the substrate whose tasks are tried; None where only safety is asked.

    Raises:
        ConfigurationError: there is none of that name.
        StaleSubstrateError: it holds what may no longer be learned from.
    """
    from headrace.services.substrates import find_manifest
    from train.substrate.manifest import require_fresh

    if exam.substrate is None:
        return None
    manifest = find_manifest(app, exam.substrate)
    require_fresh(app.lake, manifest)
    return manifest


def exam_of_ladder(policy: Path | None) -> "Exam":
    """Return the exam that a policy's ladder asks for.

    Raises:
        ConfigurationError: it asks for none.
    """
    from evolve.policy import SHIPPED, load_evolution

    exam = load_evolution(policy or SHIPPED).spec.promotion.ladder.exam
    if exam is None:
        raise ConfigurationError(
            "the policy's ladder has no exam: name model and substrate in promotion.ladder.exam of a "
            "document of kind Evolution, and give it with --policy"
        )
    return exam


def _gain(found: "Comparison") -> "PairedGain":
    from train.registry.exams import PairedGain

    return PairedGain(
        found.tasks,
        found.base.estimate,
        found.candidate.estimate,
        found.gain.estimate,
        found.gain.low,
        found.gain.high,
        found.gain_at_look.low,
    )


def _result(findings: "Iterable[RuleOutcome]") -> ExamResult:
    found = [*findings]
    return ExamResult(all(one.passed for one in found), tuple(map(_told, found)))


def _told(one: "RuleOutcome") -> str:
    measured = "not measured" if one.measured is None else f"{one.measured:.3g}"
    said = "" if one.required is None else f" (limit {one.required:.3g})"
    return f"{one.rule}: {measured}{said}{'' if one.passed else ', failed'}"
