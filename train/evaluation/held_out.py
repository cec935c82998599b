"""Held-out tasks that can be tried again: how they began, and what was recorded after that."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from train.chat import ChatMessage, UnrenderableError
from train.errors import EmptyRunError
from train.evaluation.environment import RecordedCall, RecordedTools, recorded_calls
from train.evaluation.replay_env import RecordedPath, recorded_path
from train.recipes.settings import EvaluationSettings, RecipeSpec, ReplaySettings
from train.substrate.content import ContentStore, Conversation
from train.substrate.source import LearningSource
from train.types import ScoredItem
from trajectory.canonical import content_hash

_TRAJECTORIES = """
SELECT DISTINCT trajectory_id FROM steps WHERE step_id IN (SELECT unnest($steps::VARCHAR[]))
"""
LEAST = 2
"""Tasks without which nothing can be compared."""


@dataclass(frozen=True, slots=True)
class HeldOutTask:
    """A task of the held-out side, as it was given to the agent."""

    task_id: str
    """Hash of tenant, tools and the messages that it begins with, system prompts left out."""
    tenant: str
    prompt: tuple[ChatMessage, ...] = field(repr=False)
    tools: tuple[dict[str, Any], ...] = field(repr=False)
    paths: tuple[RecordedPath, ...] = field(repr=False)
    """What agents did at it, each attempt whose calls were all answered."""
    trajectories: tuple[str, ...] = ()
    """Ids of the trajectories of all attempts that its content and its paths come from."""


@dataclass(frozen=True, slots=True)
class HeldOutTasks:
    """Held-out tasks, and the record that answers a model's tool calls."""

    tasks: tuple[HeldOutTask, ...]
    fallen: Mapping[str, int]
    """Reason → held-out tasks that cannot be tried."""
    recorded: RecordedTools = field(repr=False)
    """Of every tenant; empty where only a task's own record answers."""

    def require(self, setting: str) -> None:
        """Refuse to go on with too few.

        Raises:
            EmptyRunError: no environment replays; the text counts why.
        """
        if (obstacle := self.obstacle(setting)) is not None:
            raise EmptyRunError(obstacle)

    def obstacle(self, setting: str) -> str | None:
        """Say why nothing can be compared on these tasks; None when it can."""
        if len(self.tasks) >= LEAST:
            return None
        why = ", ".join(f"{reason} {count}" for reason, count in self.fallen.items())
        return (
            f"{setting}.replay: no environment replays: {len(self.tasks)} held-out tasks can be tried, "
            f"at least {LEAST} are needed (not: {why or 'nothing is held out; raise split.holdout'})"
        )


def examined_by_replay(spec: RecipeSpec) -> dict[str, EvaluationSettings]:
    """Return the suites of a recipe that are tried in the replayed environment, by their setting."""
    if spec.recipe == "reward_model":
        return {}  # it speaks to nobody
    suites = {"evaluation": spec.evaluation, "regression": spec.regression}
    return {
        name: suite
        for name, suite in suites.items()
        if suite is not None and suite.replay is not None
    }


def held_out_tasks(
    source: LearningSource,
    entries: Sequence[ScoredItem],
    settings: EvaluationSettings,
    *,
    evidence: Collection[str] = (),
) -> HeldOutTasks:
    """Return the tasks that a suite tries: at most ``tasks``, chosen by the seed.

    Args:
        source: the lake.
        entries: the items of the substrate.
        settings: how tasks are tried, and how many.
        evidence: steps that what is examined was drawn from. It knows their tasks, so these are left out.
    """
    held = [entry for entry in entries if entry.split != "train"]
    known = _trajectories_of(source, evidence)
    return tasks_among(source, held, settings, lending=entries, known=known)


def tasks_among(
    source: LearningSource,
    entries: Sequence[ScoredItem],
    settings: EvaluationSettings,
    *,
    lending: Sequence[ScoredItem],
    known: Collection[str] = (),
) -> HeldOutTasks:
    """Return the tasks that some items are attempts at, at most ``tasks``, chosen by the seed.

    Args:
        source: the lake.
        entries: the attempts.
        settings: how tasks are tried, and how many.
        lending: what answers a call that no attempt made, where ``answers`` is ``tenant``.
        known: trajectories whose tasks are left out.
    """
    replay = settings.replay or ReplaySettings()
    if replay.answers != "tenant":
        lending = entries
    content = ContentStore.read(source, [entry.item for entry in lending])
    fallen: Counter[str] = Counter()
    groups: dict[tuple[str, ...], list[ScoredItem]] = {}
    for entry in entries:
        groups.setdefault(entry.item.task, []).append(entry)
    tasks = []
    for key, attempts in groups.items():
        if any(entry.item.trajectory_id in known for entry in attempts):
            fallen["evidence"] += 1
            continue
        task = _task(content_hash(list(key)), attempts, content, replay)
        if isinstance(task, str):
            fallen[task] += 1
        else:
            tasks.append(task)
    tasks.sort(key=lambda task: _place(settings.seed, task.task_id))
    if len(tasks) > settings.tasks:
        fallen["over_tasks"] += len(tasks) - settings.tasks
    recorded = _recorded(lending, content) if replay.answers == "tenant" else []
    return HeldOutTasks(
        tuple(tasks[: settings.tasks]), dict(sorted(fallen.items())), RecordedTools(recorded)
    )


def _trajectories_of(source: LearningSource, steps: Collection[str]) -> set[str]:
    if not steps:
        return set()
    found = source.query(_TRAJECTORIES, parameters={"steps": sorted(steps)})
    return {*found["trajectory_id"].to_pylist()}


def _place(seed: int, task_id: str) -> bytes:
    return blake2b(f"{seed}\x1f{task_id}".encode(), digest_size=8).digest()


def _task(
    task_id: str, attempts: Sequence[ScoredItem], content: ContentStore, replay: ReplaySettings
) -> HeldOutTask | str:
    """Return a task, or the reason why it cannot be tried."""
    found: list[tuple[ScoredItem, Conversation]] = []
    reason = "content_gone"
    for entry in attempts:
        try:
            found.append((entry, content.conversation(entry.item)))
        except UnrenderableError as error:
            reason = error.reason
    if not found:
        return reason
    paths = [
        path
        for entry, talk in found
        if (path := recorded_path(talk.messages[talk.trained[0] :], rewarded=entry.rewarded))
    ]
    if not paths:
        return "no_recorded_answer"
    if replay.by_record and not any(path.rewarded and path.answer is not None for path in paths):
        return "no_expected_outcome"
    first = found[0][1].views[0]
    behind = dict.fromkeys(entry.item.trajectory_id for entry, _ in found)
    return HeldOutTask(
        task_id,
        attempts[0].item.tenant_id,
        first.prompt,
        first.tools,
        tuple(paths),
        tuple(behind),
    )


def _recorded(
    entries: Sequence[ScoredItem], content: ContentStore
) -> list[tuple[str, RecordedCall]]:
    calls = []
    for entry in entries:
        try:
            messages = content.conversation(entry.item).messages
        except UnrenderableError:
            continue
        calls += [(entry.item.tenant_id, call) for call in recorded_calls(messages)]
    return calls
