"""Lets a model try held-out tasks with recorded tools, round by round, until each episode has ended."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from train.chat import ChatMessage
from train.environment import MissedCallError, RecordedTools, tool_names
from train.following import Follower
from train.held_out import HeldOutTask, HeldOutTasks
from train.recipes.settings import ReplaySettings
from train.source import Progress, silent
from train.speaking import Asked, Said, Speaker

type Ended = Literal["answered", "missed", "cut_off", "tool_rounds"]
"""answered: the model gave its answer; missed: it called what nobody recorded; cut_off: it did not end
its message, its context was full, or its chat template cannot show what it said; tool_rounds: it went on calling."""


@dataclass(slots=True)
class Episode:
    """One attempt of a model at a task."""

    task: HeldOutTask
    attempt: int
    tools: Follower
    messages: list[ChatMessage] = field(default_factory=list, repr=False)
    """What followed the task's beginning, tool answers included."""
    ended: Ended | None = None

    def take(self, said: Said | None, *, last_round: bool) -> None:
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
) -> list[Episode]:
    """Let a model try every task; the same seed gives two models the same draws."""
    speaker = Speaker(
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
            asked = [_asked(episode, seed, played) for episode in batch]
            for episode, said in zip(batch, speaker.answer(asked), strict=True):
                episode.take(said, last_round=played == settings.tool_rounds)
    return episodes


def _lent(found: HeldOutTasks, task: HeldOutTask, settings: ReplaySettings) -> RecordedTools:
    if settings.answers == "tenant":
        return found.recorded
    calls = [call for path in task.paths for turn in path.turns for call in turn]
    return RecordedTools((task.tenant, call) for call in calls)


def _asked(episode: Episode, seed: int, played: int) -> Asked:
    messages: Sequence[ChatMessage] = [*episode.task.prompt, *episode.messages]
    return Asked(
        messages, episode.task.tools, f"{seed}/{episode.task.task_id}/{episode.attempt}/{played}"
    )


def _length(episode: Episode) -> int:
    texts = [*episode.task.prompt, *episode.messages]
    return sum(len(str(message.get("content") or "")) for message in texts)
