"""A model is examined with an artefact as a gateway would give it: where it fits, to its tenant, and no more."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakehouse.lake import Lake
from tests.train.evaluation.test_held_out import found as tasks_of
from tests.train.evaluation.test_held_out import sessions, suite
from tests.train.lakes import lake_of
from train.errors import EmptyRunError
from train.evaluation import examine
from train.evaluation.artifact_exam import examine_artifact, given
from train.evaluation.evaluate import read_report
from train.evaluation.held_out import HeldOutTasks
from train.recipes.settings import GateSettings, SafetySettings
from train.types import Completion, Prompt
from trajectory.artifact import ArtifactSpec

TOOLS = [{"type": "function", "function": {"name": "price", "parameters": {"type": "object"}}}]
ASKED = Prompt(
    [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "What do lamps cost?"},
    ],
    TOOLS,
    "seed",
)


def spec(**content: Any) -> ArtifactSpec:
    return ArtifactSpec.model_validate({"proposer": "jo", "licence": "CC0-1.0", **content})


def memory(text: str, tenant: str = "acme") -> ArtifactSpec:
    return spec(tenant=tenant, memory={"facts": [{"id": "f", "text": text}]})


def test_a_call_gets_what_fits_it_and_stays_as_it_is_otherwise() -> None:
    shown = given(memory("Lamps are sold in pairs."))(ASKED)
    assert "Lamps are sold in pairs." in shown.messages[0]["content"]
    assert (shown.messages[1], shown.tools, shown.seed) == (ASKED.messages[1], TOOLS, "seed")
    assert given(memory("Chairs have four legs."))(ASKED) == ASKED
    assert given(memory("Lamps are sold in pairs."), room=3)(ASKED) == ASKED
    assert given(None)(ASKED) == ASKED
    renamed = spec(tools={"patch": [{"op": "replace", "path": "/price/description", "value": "P"}]})
    assert given(renamed)(ASKED).tools[0]["function"]["description"] == "P"


class Reader:
    """A model that answers rightly where its prompt says how, in place of one that was trained."""

    def __init__(self, model: Path, **_: Any) -> None:
        self._model = model

    def answer(self, prompts: list[Prompt]) -> list[Completion]:
        return [Completion(self._said(one), True) for one in prompts]

    @staticmethod
    def _said(prompt: Prompt) -> dict[str, Any]:
        question = next(one["content"] for one in prompt.messages if one["role"] == "user")
        number = int(question.split()[2])
        if prompt.messages[-1]["role"] == "tool":
            knows = "Answer with the total" in str(prompt.messages[0]["content"])
            total = json.loads(prompt.messages[-1]["content"])["total"]
            return {"role": "assistant", "content": answers[total] if knows else "I do not know."}
        call = {"id": "c", "function": {"name": "price", "arguments": {"lamps": number}}}
        return {"role": "assistant", "content": "", "tool_calls": [call]}


answers: dict[int, str] = {}


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HeldOutTasks:
    lake: Lake = lake_of(tmp_path / "lake", *sessions(40))
    found = tasks_of(lake, tmp_path / "substrates", suite())
    for task in found.tasks:
        path = next(one for one in task.paths if one.rewarded)
        total = json.loads(path.turns[0][0].answer)["total"]
        answers[total] = path.answer or ""
    monkeypatch.setattr(examine, "BatchGenerator", Reader)
    return found


def examined(tasks: HeldOutTasks, one: ArtifactSpec, home: Path, **more: Any) -> Any:
    return examine_artifact(
        one, serving=more.pop("serving", None), model=home, tasks=tasks, evaluation=suite(),
        safety=None, gate=GateSettings(), reports=home / "reports",
    )  # fmt: skip


def test_an_artefact_that_helps_passes_by_the_gates_interval(
    tasks: HeldOutTasks, tmp_path: Path
) -> None:
    helps = spec(harness={"append": "Answer with the total."})
    found = examined(tasks, helps, tmp_path)
    assert found.verdict.passed
    assert found.comparison.base.estimate == 0
    assert (found.comparison.candidate.estimate, found.comparison.gain.low > 0.5) == (1, True)
    assert found.episodes["candidate"].ended == {"answered": len(tasks.tasks)}
    again = examined(tasks, helps, tmp_path, serving=helps)
    assert [one.rule for one in again.verdict.failed] == ["minimum_gain"], "it serves already"
    assert {one.success for one in read_report(tmp_path / "reports" / "base.jsonl")} == {True}


def test_an_artefact_that_changes_nothing_does_not_pass(
    tasks: HeldOutTasks, tmp_path: Path
) -> None:
    found = examined(tasks, spec(harness={"append": "Be brief."}), tmp_path)
    assert [one.rule for one in found.verdict.failed] == ["minimum_gain"]


def test_other_tenants_tasks_say_nothing_of_an_artefact(
    tasks: HeldOutTasks, tmp_path: Path
) -> None:
    with pytest.raises(EmptyRunError, match=r"exam\.evaluation\.replay"):
        examined(tasks, memory("Answer with the total.", tenant="other"), tmp_path)
    few = replace(tasks, tasks=(*tasks.tasks[:5], replace(tasks.tasks[5], tenant="other")))
    found = examined(few, memory("Lamps: answer with the total."), tmp_path)
    assert found.comparison.tasks == 5


@pytest.mark.filterwarnings("ignore")
def test_safety_alone_may_be_asked(tiny_model: Path, tmp_path: Path) -> None:
    found = examine_artifact(
        spec(harness={"append": "Be brief."}), serving=None, model=tiny_model, tasks=None,
        evaluation=suite(), safety=SafetySettings(new_tokens=4), gate=GateSettings(),
        reports=tmp_path,
    )  # fmt: skip
    assert found.comparison is None
    assert {one.rule for one in found.verdict.findings} >= {"largest_safety_loss"}
