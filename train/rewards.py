"""Reward functions and environments of the user's own: plugins, or ``package.module:name``."""

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from train.chat import ChatMessage
from train.errors import TrainingError
from trajectory.errors import ConfigurationError
from trajectory.plugins import REWARDS, load_plugin


class RewardFunction(Protocol):
    """Scores one whole episode.

    It sees the messages that the model was given and everything that followed, tool answers
    included: a reward that sees only the call, or only the last words, teaches models to please it
    and forget the task. None means that the episode cannot be scored.
    """

    def __call__(
        self, prompt: Sequence[ChatMessage], completion: Sequence[ChatMessage]
    ) -> float | None: ...


def load_object(reference: str, *, setting: str, group: str) -> Any:
    """Return what ``package.module:name`` names, or the plugin of a name in a group.

    Raises:
        ConfigurationError: naming the setting and what cannot be found.
    """
    module_name, colon, name = reference.partition(":")
    if not colon and (plugin := load_plugin(group, reference)) is not None:
        return plugin
    if not colon or not module_name or not name:
        raise ConfigurationError(
            f"{setting}: {reference!r} is neither a plugin ({group}) nor package.module:name"
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{setting}: cannot import {module_name!r} (no module {error.name!r}); "
            "install it beside Headrace, or set PYTHONPATH"
        ) from None
    try:
        return getattr(module, name)
    except AttributeError:
        raise ConfigurationError(f"{setting}: {module_name} has no {name!r}") from None


def load_reward(reference: str, *, setting: str = "options.reward") -> RewardFunction:
    """Return the reward function that a recipe names.

    Raises:
        ConfigurationError: it cannot be found or cannot be called.
    """
    function: RewardFunction = load_object(reference, setting=setting, group=REWARDS)
    if not callable(function):
        raise ConfigurationError(f"{setting}: {reference!r} cannot be called")
    return function


def episode_scorer(function: RewardFunction, name: str) -> Callable[..., list[float | None]]:
    """Return a reward function as TRL's trainers call it.

    Raises (when called):
        TrainingError: the function failed or gave something that is no finite number.
    """

    def score(
        prompts: Sequence[Sequence[ChatMessage]],
        completions: Sequence[Sequence[ChatMessage]],
        **_: Any,
    ) -> list[float | None]:
        return [
            score_episode(function, name, prompt, completion)
            for prompt, completion in zip(prompts, completions, strict=True)
        ]

    score.__name__ = name
    return score


def score_episode(
    function: RewardFunction,
    name: str,
    prompt: Sequence[ChatMessage],
    completion: Sequence[ChatMessage],
) -> float | None:
    """Return what a reward function gives one episode.

    Raises:
        TrainingError: it failed, or gave something that is no finite number.
    """
    try:
        reward = function(list(prompt), list(completion))
    except Exception as error:  # noqa: BLE001 (the user's own code: whatever it raises ends the run)
        # The text of the error may hold content.
        raise TrainingError(f"the reward function {name} raised {type(error).__name__}") from None
    if reward is None:
        return None
    if not isinstance(reward, int | float) or not math.isfinite(reward):
        raise TrainingError(
            f"the reward function {name} gave a {type(reward).__name__} that is no finite number; "
            "give a float, or None for what cannot be scored"
        )
    return float(reward)
