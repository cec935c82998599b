"""RLDS: the meaning of a step's fields, and documents of others with its names."""

from typing import Any

import pytest

from tests.trajectory.documents import own_trajectory
from trajectory.canonical import canonical_json
from trajectory.formats.rlds import export_document, import_document
from trajectory.json_form import FormError


def test_an_episode_keeps_the_rules() -> None:
    episode: Any = export_document(own_trajectory())
    steps = episode["steps"]
    assert [step["is_first"] for step in steps] == [True, False, False, False]
    assert [step["is_last"] for step in steps] == [False, False, False, True]
    assert [step["discount"] for step in steps] == [1.0, 1.0, 1.0, 0.0]
    assert [step["reward"] for step in steps] == [0.0, 0.0, 0.0, 0.0]
    # The last answer asks for a tool: the episode was cut off, not finished.
    assert [step["is_terminal"] for step in steps] == [False] * 4
    assert steps[-1]["observation"]["messages"] == [{"role": "user", "content": "thanks"}]
    names = {frozenset(step) for step in steps}
    assert len(names) == 1  # every step has the same fields, as a data set needs them


def episode(**changes: Any) -> dict[str, Any]:
    step = {
        "observation": {"messages": [{"role": "user", "content": "hi"}], "camera": [1, 2]},
        "action": {"message": {"role": "assistant", "content": "hello"}},
        "reward": 0.5,
        "discount": 0.9,
        "is_first": True,
        "is_last": False,
        "is_terminal": False,
        **changes,
    }
    last = {**step, "is_first": False, "is_last": True, "is_terminal": True, "reward": 0.0}
    last["observation"] = {"messages": []}
    return {"steps": [step, last], "episode_metadata": {"episode_id": "e", "robot": "r2"}}


def test_another_episode_is_understood_and_comes_back() -> None:
    trajectory = import_document(episode())
    (step,) = trajectory.steps
    assert (step.output.text(), step.signals[0].value) == ("hello", 0.5)
    assert trajectory.trajectory_id == "e"
    assert canonical_json(export_document(trajectory)) == canonical_json(episode())


def test_who_used_the_application_stands_in_the_metadata_of_the_episode() -> None:
    document = episode()
    document["episode_metadata"]["user_id"] = "u-17"
    assert import_document(document).end_user == "u-17"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"is_first": False}, r"steps\[0\]: is_first: expected true"),
        ({"reward": "much"}, r"steps\[0\]: reward: expected a number"),
        ({"action": 3}, r"steps\[0\]: action.message: expected an object"),
        ({"observation": {}}, r"steps\[0\]: observation.messages: expected a list"),
    ],
)
def test_wrong_episodes_are_told(change: dict[str, Any], words: str) -> None:
    with pytest.raises(FormError, match=f"^e.json: {words}"):
        import_document(episode(**change), where="e.json")
