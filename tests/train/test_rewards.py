"""Reward functions are found by name; what they do wrong ends the run with a clear error."""

from collections.abc import Sequence
from typing import Any

import pytest

from train.errors import TrainingError
from train.rewards import episode_scorer, load_object, load_reward
from trajectory.errors import ConfigurationError
from trajectory.plugins import ENVIRONMENTS

HERE = "tests.train.test_rewards"


def brevity(prompt: Sequence[Any], completion: Sequence[Any]) -> float | None:
    spoken = completion[-1]["content"]
    return None if not prompt else -float(len(spoken))


def broken(prompt: Sequence[Any], completion: Sequence[Any]) -> float:
    raise KeyError("a customer's name")


def endless(prompt: Sequence[Any], completion: Sequence[Any]) -> float:
    return float("inf")


def test_every_episode_is_scored_as_a_whole() -> None:
    score = episode_scorer(load_reward(f"{HERE}:brevity"), "brevity")
    ask = [{"role": "user", "content": "?"}]
    said = [[{"role": "assistant", "content": text}] for text in ("ab", "abc", "a")]
    found = score(prompts=[ask, ask, []], completions=said, trainer_state=None)
    assert found == [-2.0, -3.0, None]


@pytest.mark.parametrize(("name", "text"), [("broken", "KeyError"), ("endless", "finite")])
def test_a_faulty_function_is_named_without_its_words(name: str, text: str) -> None:
    score = episode_scorer(load_reward(f"{HERE}:{name}"), name)
    with pytest.raises(TrainingError, match=text) as caught:
        score(prompts=[[]], completions=[[]])
    assert "customer" not in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ("brevity", "package.module:name"),
        ("no_such_module:brevity", "no_such_module"),
        (f"{HERE}:absent", "absent"),
        (f"{HERE}:HERE", "cannot be called"),
    ],
)
def test_a_wrong_name_says_what_is_missing(reference: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        load_reward(reference)


def test_environments_are_found_the_same_way() -> None:
    assert (
        load_object("collections:Counter", setting="options.environment", group=ENVIRONMENTS)()
        == {}
    )
