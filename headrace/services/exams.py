"""Exams of candidates, as a ladder asks for them: a model that serves here answers, without a change and with it."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from evolve.ladder import Examiner, ExamResult
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evolve.policy import Exam
    from evolve.trial_files import Surface
    from headrace.app.context import AppContext
    from train.evaluation.gate import RuleOutcome
    from train.evaluation.held_out import HeldOutTasks


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
    from headrace.cli import artifact, train
    from train.evaluation.artifact_exam import examine_artifact

    artifacts = artifact.registry(app)
    content = artifacts.get(name, version).content
    serving = artifacts.get(name, control).content if control else None
    if exam.model is None or content is None:
        raise ConfigurationError(
            "an exam of an artefact needs promotion.ladder.exam.model: the model that is given it"
            if exam.model is None
            else f"{name}@{version} holds nothing any more: it was drawn from what was erased"
        )
    model = train.registry(app).live(exam.model)
    if model is None:
        raise ConfigurationError(
            f"exam.model: no version of {exam.model!r} serves (`headrace train list`)"
        )
    with tempfile.TemporaryDirectory(dir=app.home.create().state) as folder:
        found = examine_artifact(
            content,
            serving=serving,
            model=model.path,
            tasks=_tasks(app, exam),
            evaluation=exam.evaluation,
            safety=exam.safety,
            gate=exam.gate,
            reports=Path(folder),
        )
    return _result(found.verdict.findings)


def _tasks(app: "AppContext", exam: "Exam") -> "HeldOutTasks | None":
    """Return the held-out tasks of a substrate that may still be used."""
    from headrace.services.substrates import find_manifest
    from train.evaluation.held_out import held_out_tasks
    from train.substrate.manifest import load_items, require_fresh

    if exam.substrate is None:
        return None
    manifest = find_manifest(app, exam.substrate)
    require_fresh(app.lake, manifest)
    return held_out_tasks(app.lake, load_items(manifest), exam.evaluation)


def _result(findings: "Iterable[RuleOutcome]") -> ExamResult:
    found = [*findings]
    return ExamResult(all(one.passed for one in found), tuple(map(_told, found)))


def _told(one: "RuleOutcome") -> str:
    measured = "not measured" if one.measured is None else f"{one.measured:.3g}"
    said = "" if one.required is None else f" (limit {one.required:.3g})"
    return f"{one.rule}: {measured}{said}{'' if one.passed else ', failed'}"
