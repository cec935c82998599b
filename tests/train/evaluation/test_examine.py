"""A model is examined on held-out tasks with recorded tools; what nobody knows is never a success."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.train.evaluation.test_replay_env import call, path
from train.errors import EvaluationError
from train.evaluation.environment import RecordedTools
from train.evaluation.examine import Episode, Score, episode_scores, reward_score
from train.evaluation.held_out import HeldOutTask
from train.evaluation.replay_env import Follower, RecordedPath
from train.recipes.settings import EvaluationSettings, ReplaySettings
from train.types import Completion


def episode(*paths: RecordedPath) -> Episode:
    prompt = ({"role": "user", "content": "What?"},)
    task = HeldOutTask("t", "acme", prompt, (), paths)
    elsewhere = RecordedTools([("acme", call(9, "90"))])
    return Episode(task, 0, Follower(paths, elsewhere, tenant="acme"))


def said(text: str = "", *numbers: int, whole: bool = True) -> Completion:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if numbers:
        message["tool_calls"] = [
            {"id": f"c{n}", "function": {"name": "price", "arguments": {"n": n}}} for n in numbers
        ]
    return Completion(message, whole)


def played(*words: Completion | None, paths: Sequence[RecordedPath] = ()) -> Episode:
    found = episode(*(paths or [RecordedPath(((call(1, "12"),),), "It is  12.", True)]))
    for place, one in enumerate(words):
        found.take(one, last_round=place == 3)
    return found


def score(found: Episode, **replay: Any) -> float:
    settings = EvaluationSettings.model_validate({"replay": replay})
    assert settings.replay is not None
    scored = episode_scores(settings, settings.replay, [found], Path("r.jsonl"))["t", 0]
    assert scored is not None
    assert scored.solved == (scored.reward > 0)
    return scored.reward


def test_an_episode_ends_in_one_of_few_ways() -> None:
    assert played(said("", 1), said("it is 12.")).ended == "answered"
    missed = played(said("", 1, 2))
    assert (missed.ended, missed.tools.calls) == ("missed", 2)
    assert played(said("", 1), said("It", whole=False)).ended == "cut_off"
    assert played(None).ended == "cut_off"
    assert played(said("", 1), said("", 9), said("", 9), said("", 9)).ended == "tool_rounds"


def test_right_is_what_ends_as_a_rewarded_attempt_did() -> None:
    assert score(played(said("", 1), said("IT is 12. "))) == 1
    assert score(played(said("", 1), said("It is 13."))) == 0
    assert score(played(said("It is 12."))) == 1
    assert score(played(said("It is 12.")), expected="both") == 0
    assert (
        score(
            played(
                said("", 1),
                said("No."),
            ),
            expected="calls",
        )
        == 1
    )
    assert score(played(said("", 1), said("It is 12.")), expected="both") == 1
    assert score(played(said("", 1), said("It is 12.", whole=False))) == 0
    wrong = RecordedPath((), "It is 12.", False)
    assert score(played(said("It is 12."), paths=[wrong, path()])) == 0


def test_a_reward_function_sees_the_whole_episode_and_its_least_counts() -> None:
    reward = "tests.train.test_rewards:brevity"
    assert score(played(said("abc")), reward=reward) == -3
    replay = ReplaySettings(reward=reward)
    assert reward_score(0.0, replay) == Score(0.0, False)
    assert reward_score(None, replay) is None
    lenient = replay.model_copy(update={"minimum_reward": -3.0})
    assert reward_score(-3.0, lenient) == Score(-3.0, True)


def test_gold_is_asked_too_and_decides_nothing() -> None:
    replay = {"gold": "tests.train.test_rewards:brevity"}
    settings = EvaluationSettings.model_validate({"replay": replay})
    assert settings.replay is not None
    right = played(said("", 1), said("It is 12."))
    assert episode_scores(settings, settings.replay, [right], Path("r.jsonl")) == {
        ("t", 0): Score(1.0, True, gold=False)
    }


VERIFIER = """
import json, sys
episodes, report = sys.argv[2], sys.argv[4]
with open(report, "w") as file:
    for line in map(json.loads, open(episodes)):
        words = line["completion"][-1]["content"]
        found = {"task_id": line["task_id"], "attempt": line["attempt"], "success": words == "yes"}
        found["reward"] = len(words) / 10
        file.write(json.dumps({**found, "unknown": words == "perhaps"}) + "\\n" if words else "")
"""


def test_a_verifier_judges_episodes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    program = tmp_path / "verifier.py"
    program.write_text(VERIFIER)
    settings = EvaluationSettings.model_validate({"replay": {"verifier": ["python", str(program)]}})
    assert settings.replay is not None
    report = tmp_path / "base.jsonl"
    told = {"yes": Score(0.3, True), "no": Score(0.2, False), "perhaps": None}
    for words, expected in told.items():
        found = episode_scores(settings, settings.replay, [played(said(words))], report)
        assert found == {("t", 0): expected}
    with pytest.raises(EvaluationError, match="the report is empty"):
        episode_scores(settings, settings.replay, [played(said(""))], report)
    assert [path.name for path in tmp_path.iterdir()] == ["verifier.py"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "either a command or replay"),
        ({"command": ["x"], "replay": {}}, "either a command or replay"),
        ({"replay": {"reward": "a:b", "verifier": ["x"]}}, "not both"),
        ({"replay": {"attempts": 2}}, "all end alike"),
    ],
)
def test_settings_that_say_nothing_or_two_things_are_refused(
    settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        EvaluationSettings.model_validate(settings)
