"""GEPA itself searches for texts: from tasks that may be read alone, and for what a model does better with."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evolve.proposers.optimizer import (
    SearchBudget,
    SearchOutcome,
    SearchTasks,
    search,
    search_tasks,
    texts_of,
    with_texts,
)
from lakehouse.lake import Lake
from tests.train.evaluation.test_held_out import NEXT_DAY, SPLIT, suite
from tests.train.lakes import PURPOSES, Session, batch, lake_of
from tests.train.registry.test_artifacts import withdraw_evolve
from tests.train.substrate.test_build import build
from train.evaluation import examine
from train.substrate.manifest import load_items
from train.types import Completion, Prompt
from trajectory.artifact import ArtifactSpec
from trajectory.errors import ConfigurationError, WorkError

MAY = (*PURPOSES, "evolve")
KNOWS = "State the total of the tool."
BUDGET = SearchBudget(proposals=4, tries=200, at_once=3)


class Shop:
    """A model that answers rightly where its prompt says how, in place of one that was trained."""

    def __init__(self, model: Path, **_: Any) -> None:
        self._model = model

    def answer(self, prompts: list[Prompt]) -> list[Completion]:
        return [Completion(self._said(one), True) for one in prompts]

    @staticmethod
    def _said(prompt: Prompt) -> dict[str, Any]:
        if prompt.messages[-1]["role"] == "tool":
            total = json.loads(prompt.messages[-1]["content"])["total"]
            knows = KNOWS in str(prompt.messages[0]["content"])
            return {
                "role": "assistant",
                "content": f"They cost {total}." if knows else "I do not know.",
            }
        question = next(one["content"] for one in prompt.messages if one["role"] == "user")
        call = {
            "id": "c",
            "function": {"name": "price", "arguments": {"lamps": int(question.split()[2])}},
        }
        return {"role": "assistant", "content": "", "tool_calls": [call]}


@pytest.fixture(autouse=True)
def shop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "BatchGenerator", Shop)


def spec(**content: Any) -> ArtifactSpec:
    told = content or {"harness": {"append": "Be brief."}}
    return ArtifactSpec.model_validate(
        {"tenant": "acme", "proposer": "jo", "licence": "CC0-1.0", **told}
    )


def asked(number: int, **changes: Any) -> Session:
    """A session of one person, whom the steps name."""
    more = {"purposes": MAY, "subject": f"b2:person-{number}", **changes}
    return Session(number, group=f"g{number}", **more)


def tasks_of(lake: Lake, folder: Path, **more: Any) -> SearchTasks:
    items = load_items(build(lake, folder / "substrates", split=SPLIT))
    return search_tasks(lake, items, suite(), tenant="acme", **more)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> SearchTasks:
    """Six tasks that may be read."""
    folder = tmp_path_factory.mktemp("shop")
    return tasks_of(lake_of(folder / "lake", *(asked(n) for n in range(1, 7))), folder)


def searched(tasks: SearchTasks, reflect: Callable[[str], str], folder: Path) -> SearchOutcome:
    return search(spec(), tasks, Path("m"), suite(), reflect, budget=BUDGET, folder=folder)


def test_a_better_text_is_found_and_names_the_steps_that_it_was_drawn_from(
    tasks: SearchTasks, tmp_path: Path
) -> None:
    prompts: list[str] = []

    def reflect(prompt: str) -> str:
        prompts.append(prompt)
        return f"Here it is:\n```\n{KNOWS}\n```"

    found = searched(tasks, reflect, tmp_path)
    assert found.spec is not None
    assert found.spec.harness is not None
    assert (found.spec.harness.append, found.spec.proposer) == (KNOWS, "gepa")
    assert (found.before, found.after, found.tasks) == (0, 1, 6)
    read = {n for n in range(1, 7) if any(f"What do {n} lamps cost?" in one for one in prompts)}
    assert len(read) == 3, "of as many as it reads at once"
    assert found.spec.all_evidence == {f"t{n:05d}-{at}" for n in read for at in (0, 1)}
    assert "Be brief." in prompts[0]
    assert "I do not know." in prompts[0]
    assert "answer: They cost" in prompts[0]


def test_a_text_that_helps_with_nothing_is_no_candidate(tasks: SearchTasks, tmp_path: Path) -> None:
    found = searched(tasks, lambda _: "```\nBe kind.\n```", tmp_path)
    assert (found.spec, found.after, found.proposals) == (None, 0, BUDGET.proposals)


def test_what_may_not_be_drawn_from_is_never_read(tmp_path: Path) -> None:
    may = [asked(n) for n in range(1, 5)]
    no_purpose, other, held = 11, 12, NEXT_DAY + 1
    lake = lake_of(
        tmp_path / "lake",
        *may,
        asked(no_purpose, purposes=PURPOSES),
        asked(other, tenant="umbra"),
        asked(held),
        asked(13),
    )
    items = load_items(build(lake, tmp_path / "substrates", split=SPLIT))
    withdraw_evolve(lake, "b2:person-13")
    left = search_tasks(lake, items, suite(), tenant="acme")
    assert len(left.found.tasks) == len(may)
    assert left.found.fallen["no_purpose_evolve"] == 2
    prompts: list[str] = []

    def reflect(prompt: str) -> str:
        prompts.append(prompt)
        return f"```\nBe kind {len(prompts)} times.\n```"

    searched(left, reflect, tmp_path)
    said = "\n".join(prompts)
    assert len(prompts) == BUDGET.proposals
    assert not any(f"What do {n} lamps" in said for n in (no_purpose, other, held, 13))


def test_one_step_that_does_not_allow_it_keeps_its_whole_conversation_out(tmp_path: Path) -> None:
    whole = batch(asked(1), asked(2), asked(3))
    barred = tuple(
        replace(one, purposes=PURPOSES) if one.step_id == "t00003-0" else one
        for one in whole.governance
    )
    lake = Lake.open(str(tmp_path / "lake"))
    lake.append(replace(whole, governance=barred), app_id="test", version=0)
    left = tasks_of(lake, tmp_path)
    assert sorted(one.trajectories[0] for one in left.found.tasks) == ["t00001", "t00002"]


def test_tasks_rest_on_no_more_steps_than_an_artefact_may_name(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *(asked(n) for n in range(1, 7)))
    assert len(tasks_of(lake, tmp_path, most_steps=7).found.tasks) == 3


def test_what_is_no_artefact_solves_nothing_and_the_search_goes_on(
    tasks: SearchTasks, tmp_path: Path
) -> None:
    texts = iter(["x" * 30_000, "<headrace-artifact>", "Be kind.", KNOWS])
    found = searched(tasks, lambda _: f"```\n{next(texts)}\n```", tmp_path)
    assert found.after == 1
    assert found.spec is not None


def test_a_model_that_does_not_answer_ends_the_search_with_its_error(
    tasks: SearchTasks, tmp_path: Path
) -> None:

    def reflect(_: str) -> str:
        raise WorkError("nobody answers")

    with pytest.raises(WorkError, match="nobody answers"):
        searched(tasks, reflect, tmp_path)


SKILL = {"title": "Prices", "trigger": {"phrases": ["lamps"]}, "procedure": "Call price."}
PATCH = [
    {"op": "test", "path": "/price/description", "value": "Old."},
    {"op": "replace", "path": "/price/description", "value": "Says prices."},
    {"op": "add", "path": "/price/parameters/properties/lamps", "value": {"description": "How many"}},
    {"op": "add", "path": "/price/parameters/properties/lamps/description", "value": "How many."},
]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ({"harness": {"append": "Be brief."}}, ["Be brief."]),
        ({"harness": {"replace": {"old": "a", "new": "b"}}}, ["b"]),
        ({"skill": SKILL}, ["Call price."]),
        ({"tools": {"patch": PATCH}}, ["Says prices.", "How many."]),
    ],
)
def test_texts_are_rewritten_and_nothing_else(content: dict[str, Any], texts: list[str]) -> None:
    before = spec(**content)
    found = texts_of(before)
    assert [*found.values()] == texts
    assert with_texts(before, found) == before
    after = with_texts(before, {name: f"{text} Now." for name, text in found.items()})
    assert [*texts_of(after).values()] == [f"{text} Now." for text in texts]


def test_facts_are_not_rewritten() -> None:
    facts = {"facts": [{"id": "f", "text": "Lamps are sold in pairs."}]}
    with pytest.raises(ConfigurationError, match="artifact propose"):
        texts_of(spec(memory=facts))


def test_without_the_package_the_error_says_what_to_install(
    tasks: SearchTasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gepa", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'headrace\[gepa\]'"):
        searched(tasks, str, tmp_path)
