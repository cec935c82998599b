"""Examines a model at held-out tasks in the replayed tool environment, round by round, and scores what it did.

A reward function or a verifier of the user's own scores whole episodes; without one, an episode is
right when it ended as a rewarded recorded attempt did. An episode whose end nobody knows (the model
called what was never recorded, or the function could not tell) is never right, and is counted.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from train.chat import ChatMessage
from train.errors import EvaluationError
from train.evaluation.environment import MissedCallError, RecordedTools, canonical, tool_names
from train.evaluation.evaluate import TaskResult, read_report, run_program
from train.evaluation.held_out import HeldOutTask, HeldOutTasks
from train.evaluation.replay_env import Follower, RecordedPath
from train.generation import BatchGenerator
from train.recipes.settings import EvaluationSettings, ReplaySettings
from train.rewards import load_reward, score_episode
from train.substrate.source import Progress, silent
from train.types import Completion, Prompt

type Ended = Literal["answered", "missed", "cut_off", "tool_rounds"]
"""answered: the model gave its answer; missed: it called what nobody recorded; cut_off: it did not end
its message, its context was full, or its chat template cannot show what it said; tool_rounds: it went on calling."""


type ShownPrompt = Callable[[Prompt], Prompt]
"""Makes of a call what the model gets, as a gateway with artefacts does."""


def as_it_is(prompt: Prompt) -> Prompt:
    """Return a call unchanged."""
    return prompt


@dataclass(slots=True)
class Episode:
    """One attempt of a model at a task."""

    task: HeldOutTask
    attempt: int
    tools: Follower
    messages: list[ChatMessage] = field(default_factory=list, repr=False)
    """What followed the task's beginning, tool answers included."""
    ended: Ended | None = None

    def take(self, said: Completion | None, *, last_round: bool) -> None:
        """Take what the model said, and answer its calls."""
        if said is None:
            self.ended = "cut_off"
            return
        self.messages.append(said.message)
        calls = said.message.get("tool_calls", ())
        if not said.whole:
            self.ended = "cut_off"
        elif not calls:
            self.ended = "answered"
            self.tools.close()
        elif last_round:
            self.ended = "tool_rounds"
        for call in calls if self.ended is None else ():
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            try:
                answer = self.tools.call(name, arguments)
            except MissedCallError:
                # Nobody knows what the tool would have said, nor how it would have ended.
                self.ended = "missed"
                return
            told = {"role": "tool", "tool_call_id": call["id"], "name": name, "content": answer}
            self.messages.append(told)


def try_tasks(
    model: Path,
    found: HeldOutTasks,
    settings: ReplaySettings,
    *,
    seed: int,
    progress: Progress = silent,
    shown: ShownPrompt = as_it_is,
) -> list[Episode]:
    """Let a model try every task; the same seed gives two models the same draws."""
    generator = BatchGenerator(
        model, temperature=settings.temperature, most_tokens=settings.completion_tokens
    )
    episodes = [
        Episode(
            task,
            attempt,
            Follower(
                task.paths,
                _lent(found, task, settings),
                tenant=task.tenant,
                names=tool_names(task.tools),
            ),
        )
        for task in found.tasks
        for attempt in range(settings.attempts)
    ]
    for played in range(settings.tool_rounds + 1):
        under_way = [episode for episode in episodes if episode.ended is None]
        progress("evaluate", len(episodes) - len(under_way), len(episodes))
        # Of like length together, so that little is padded.
        under_way.sort(key=lambda episode: _length(episode))
        for start in range(0, len(under_way), settings.batch_size):
            batch = under_way[start : start + settings.batch_size]
            asked = [shown(_asked(episode, seed, played)) for episode in batch]
            for episode, said in zip(batch, generator.answer(asked), strict=True):
                episode.take(said, last_round=played == settings.tool_rounds)
    return episodes


def _lent(found: HeldOutTasks, task: HeldOutTask, settings: ReplaySettings) -> RecordedTools:
    if settings.answers == "tenant":
        return found.recorded
    calls = [call for path in task.paths for turn in path.turns for call in turn]
    return RecordedTools((task.tenant, call) for call in calls)


def _asked(episode: Episode, seed: int, played: int) -> Prompt:
    messages: Sequence[ChatMessage] = [*episode.task.prompt, *episode.messages]
    return Prompt(
        messages, episode.task.tools, f"{seed}/{episode.task.task_id}/{episode.attempt}/{played}"
    )


def _length(episode: Episode) -> int:
    texts = [*episode.task.prompt, *episode.messages]
    return sum(len(str(message.get("content") or "")) for message in texts)


class Score(NamedTuple):
    """Score of an episode."""

    reward: float
    solved: bool
    gold: bool | None = None
    """Whether ``replay.gold`` calls it solved too."""


type Scores = dict[tuple[str, int], Score | None]
"""(task, attempt) → score; None: it cannot be told."""


@dataclass(frozen=True, slots=True)
class EpisodeOutcomes:
    """Outcomes of one model's episodes."""

    episodes: int
    ended: Mapping[str, int]
    """answered, missed, cut_off, tool_rounds, unscored → episodes."""
    diverged: Mapping[str, int]
    """Kind of the first divergence from the record → episodes; those without one are not counted."""


def examine(
    settings: EvaluationSettings,
    found: HeldOutTasks,
    model: Path,
    *,
    report: Path,
    progress: Progress = silent,
    shown: ShownPrompt = as_it_is,
) -> tuple[list[TaskResult], EpisodeOutcomes]:
    """Let a model try the tasks, write one line per episode to ``report``, and return what came of it.

    ``shown`` makes of each call what the model gets.

    Raises:
        EvaluationError: the verifier failed.
        TrainingError: the reward function failed.
    """
    replay = settings.replay or ReplaySettings()
    episodes = try_tasks(model, found, replay, seed=settings.seed, progress=progress, shown=shown)
    results = results_of(settings, episodes, report=report)
    lines = [
        json.dumps({**_line(result), **_course(episode, result)}, sort_keys=True)
        for episode, result in zip(episodes, results, strict=True)
    ]
    report.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return results, _summary(episodes, results)


def results_of(
    settings: EvaluationSettings, episodes: Sequence[Episode], *, report: Path
) -> list[TaskResult]:
    """Score episodes; a verifier's files stand beside ``report`` while it works.

    Raises:
        EvaluationError: the verifier failed.
        TrainingError: the reward function failed.
    """
    replay = settings.replay or ReplaySettings()
    report.parent.mkdir(parents=True, exist_ok=True)
    known = [episode for episode in episodes if episode.ended != "missed"]
    scores = episode_scores(settings, replay, known, report)
    least = min([0.0, *(score.reward for score in scores.values() if score is not None)])
    slices = len({episode.task.tenant for episode in episodes}) > 1
    results = []
    for episode in episodes:
        score = scores.get((episode.task.task_id, episode.attempt))
        result = TaskResult(
            task_id=episode.task.task_id,
            attempt=episode.attempt,
            success=score is not None and score.solved,
            reward=least if score is None else score.reward,
            slice=episode.task.tenant if slices else None,
            unknown=score is None,
            gold=None if score is None else score.gold,
        )
        results.append(result)
    return results


def reward_score(reward: float | None, replay: ReplaySettings) -> Score | None:
    """Return what a reward says of an episode; None where there is no reward."""
    if reward is None:
        return None
    least = replay.minimum_reward
    return Score(reward, reward > 0 if least is None else reward >= least)


def _line(result: TaskResult) -> dict[str, Any]:
    line: dict[str, Any] = {
        "task_id": result.task_id,
        "attempt": result.attempt,
        "success": result.success,
        "reward": result.reward,
        "unknown": result.unknown,
    }
    more = {"slice": result.slice, "gold": result.gold}
    return {**line, **{name: value for name, value in more.items() if value is not None}}


def _course(episode: Episode, result: TaskResult) -> dict[str, Any]:
    """Return how an episode went; nothing of what was said."""
    course: dict[str, Any] = {"ended": _end(episode, result), "calls": episode.tools.calls}
    if (diverged := episode.tools.diverged) is not None:
        course["diverged"] = {
            "call": diverged.call,
            "kind": diverged.kind,
            "tool": diverged.tool,
            "arguments": list(diverged.arguments),
        }
    return course


def _end(episode: Episode, result: TaskResult) -> str:
    if result.unknown and episode.ended != "missed":
        return "unscored"
    return str(episode.ended)


def _summary(episodes: Sequence[Episode], results: Sequence[TaskResult]) -> EpisodeOutcomes:
    ends = Counter(_end(e, r) for e, r in zip(episodes, results, strict=True))
    kinds = Counter(e.tools.diverged.kind for e in episodes if e.tools.diverged is not None)
    return EpisodeOutcomes(len(episodes), dict(sorted(ends.items())), dict(sorted(kinds.items())))


def episode_scores(
    settings: EvaluationSettings, replay: ReplaySettings, known: Sequence[Episode], report: Path
) -> Scores:
    """Return each episode's score, with gold's verdict where the settings name a gold reward."""
    scores = _proxy_scores(settings, replay, known, report)
    if replay.gold is None:
        return scores
    function, name = load_reward(replay.gold, setting="replay.gold"), replay.gold.partition(":")[2]
    for episode in known:
        if (score := scores.get(_key(episode))) is not None:
            gold = score_episode(function, name, episode.task.prompt, episode.messages)
            told = None if gold is None else gold > 0
            scores[_key(episode)] = score._replace(gold=told)
    return scores


def _proxy_scores(
    settings: EvaluationSettings, replay: ReplaySettings, known: Sequence[Episode], report: Path
) -> Scores:
    if replay.verifier is not None:
        given = _verified(settings, replay.verifier, known, report)
        return {(r.task_id, r.attempt): _verdict(r, replay) for r in given}
    if replay.reward is not None:
        function = load_reward(replay.reward, setting="replay.reward")
        name = replay.reward.partition(":")[2]
        return {
            _key(episode): reward_score(
                score_episode(function, name, episode.task.prompt, episode.messages), replay
            )
            for episode in known
        }
    return {
        _key(episode): reward_score(float(_as_recorded(episode, replay)), replay)
        for episode in known
    }


def _key(episode: Episode) -> tuple[str, int]:
    return episode.task.task_id, episode.attempt


def _as_recorded(episode: Episode, replay: ReplaySettings) -> bool:
    """Tell whether an episode ended as some rewarded attempt did."""
    if episode.ended != "answered":
        return False
    rewarded = [p for p in episode.task.paths if p.rewarded and p.answer is not None]
    return any(_alike(episode, path, replay.expected) for path in rewarded)


def _alike(episode: Episode, path: RecordedPath, expected: str) -> bool:
    answer = _plain(str(episode.messages[-1]["content"])) == _plain(path.answer or "")
    if expected == "answer":
        return answer
    calls = _calls(episode.messages) == Counter(
        (call.tool, call.arguments) for turn in path.turns for call in turn
    )
    return calls and (answer or expected == "calls")


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _calls(messages: Sequence[ChatMessage]) -> Counter[tuple[str, str]]:
    calls = [call["function"] for message in messages for call in message.get("tool_calls", ())]
    return Counter((call["name"], canonical(call["arguments"])) for call in calls)


def _verdict(result: TaskResult, replay: ReplaySettings) -> Score | None:
    """Return what a verifier said; its own word holds where no least reward is asked for."""
    if result.unknown:
        return None
    if replay.minimum_reward is None:
        return Score(result.reward, result.success, result.gold)
    scored = reward_score(result.reward, replay)
    return scored and scored._replace(gold=result.gold)


def _verified(
    settings: EvaluationSettings, command: Sequence[str], known: Sequence[Episode], report: Path
) -> list[TaskResult]:
    """Give whole episodes to the user's verifier; what it read is deleted, whatever happens."""
    episodes, verdict = report.with_suffix(".episodes"), report.with_suffix(".verdict")
    lines = [
        {
            "task_id": episode.task.task_id,
            "attempt": episode.attempt,
            "prompt": list(episode.task.prompt),
            "completion": episode.messages,
            "ended": episode.ended,
        }
        for episode in known
    ]
    try:
        with os.fdopen(
            os.open(episodes, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
        ) as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        run_program(
            [*command, "--episodes", str(episodes), "--report", str(verdict)],
            setting="replay.verifier",
            seconds=settings.timeout_seconds,
            folder=report.parent,
        )
        given = read_report(verdict) if known else []
    finally:
        episodes.unlink(missing_ok=True)
        verdict.unlink(missing_ok=True)
    if {(r.task_id, r.attempt) for r in given} != {_key(episode) for episode in known}:
        raise EvaluationError(
            "replay.verifier: its report is not about the episodes it was given; it must write one "
            "line for each task_id and attempt"
        )
    return given
