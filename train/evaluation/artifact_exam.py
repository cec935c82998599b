"""The exam of an artefact: one model on held-out tasks and in a suite of safety, without it and with it.

Each call of an episode reaches the model as a gateway that applies the artefact would send it. So facts
and procedures are shown where they fit, within the route's tokens.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from proxy.artifacts.blocks import MalformedArtifactError, NoRoomError, PreparedArtifact
from proxy.artifacts.bodies import ChatBody
from train.evaluation.evaluate import Comparison, compare
from train.evaluation.examine import EpisodeOutcomes, ShownPrompt, as_it_is, examine
from train.evaluation.gate import GateVerdict, RuleOutcome, judge, judge_safety
from train.evaluation.held_out import HeldOutTasks
from train.evaluation.safety import SafetyComparison, safety_with
from train.recipes.settings import EvaluationSettings, GateSettings, SafetySettings
from train.substrate.source import Progress, silent
from train.types import Prompt
from trajectory.artifact import ArtifactSpec

ROOM = 1000
"""Tokens that artefacts may add to a call where no route says otherwise."""


@dataclass(frozen=True, slots=True)
class ArtifactExam:
    """What a model did with an artefact that it did not do without."""

    verdict: GateVerdict
    comparison: Comparison | None = None
    safety: SafetyComparison | None = None
    episodes: Mapping[str, EpisodeOutcomes] = field(default_factory=dict)
    """How episodes went: base, candidate."""


def given(artifact: ArtifactSpec | None, *, room: int = ROOM) -> ShownPrompt:
    """Return what makes of a call what a gateway sends that applies an artefact."""
    if artifact is None:
        return as_it_is
    prepared = PreparedArtifact("candidate@0", artifact)
    agent = None if artifact.harness is None else artifact.harness.agent

    def applied(prompt: Prompt) -> Prompt:
        told = {"messages": [*prompt.messages], "tools": [*prompt.tools]}
        body = ChatBody(json.dumps(told).encode())
        try:
            added = prepared.apply(body, agent, room)
        except (NoRoomError, MalformedArtifactError, ValueError):
            return prompt
        if added is None:
            return prompt
        sent = json.loads(body.sent())
        return replace(prompt, messages=sent["messages"], tools=sent["tools"])

    return applied


def examine_artifact(
    artifact: ArtifactSpec,
    *,
    serving: ArtifactSpec | None,
    model: Path,
    tasks: HeldOutTasks | None,
    evaluation: EvaluationSettings,
    safety: SafetySettings | None,
    gate: GateSettings,
    reports: Path,
    look: int = 1,
    progress: Progress = silent,
) -> ArtifactExam:
    """Let a model try held-out tasks and a suite without and with an artefact, and judge.

    Args:
        artifact: the candidate.
        serving: what serves under its name now, with which it is compared.
        model: folder of the model.
        tasks: held-out ones; None where it is only asked about safety. Another tenant's are left out.
        evaluation: how tasks are tried.
        safety: the suite, if any.
        gate: the rules.
        reports: folder for the episodes' reports.
        look: the how-manieth candidate it is at these tasks since one passed or what serves changed.
        progress: told how far it is.

    Raises:
        EmptyRunError: too few tasks are of the artefact's tenant.
    """
    comparison, episodes = None, {}
    if tasks is not None:
        own = tuple(one for one in tasks.tasks if artifact.tenant in (None, one.tenant))
        tasks = replace(tasks, tasks=own)
        tasks.require("exam.evaluation")
        results = {}
        for name, spec in (("base", serving), ("candidate", artifact)):
            results[name], episodes[name] = examine(
                evaluation,
                tasks,
                model,
                report=reports / f"{name}.jsonl",
                progress=progress,
                shown=given(spec),
            )
        comparison = compare(results["base"], results["candidate"], evaluation, look=look)
    behaviour = None if safety is None else safety_with(safety, model, artifact)
    findings: list[RuleOutcome] = []
    if comparison is not None:
        findings += judge(gate, comparison).findings
    if behaviour is not None:
        findings += judge_safety(gate, behaviour)
    verdict = GateVerdict(all(one.passed for one in findings), tuple(findings))
    return ArtifactExam(verdict, comparison, behaviour, episodes)
