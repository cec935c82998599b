"""Searches for a better text of an artefact with GEPA (PyPI ``gepa``, arXiv 2507.19457).

A model tries tasks of a substrate's train side in the replayed tool environment. A reflection model reads
what went wrong and writes another text; what solves more of the tasks goes on. Held-out tasks are no
part of this: whether what was found is better is the question of an exam.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from train.chat import ChatMessage
from train.evaluation.artifact_exam import given
from train.evaluation.examine import Episode, results_of, try_tasks
from train.evaluation.held_out import HeldOutTask, HeldOutTasks, tasks_among
from train.evaluation.replay_env import RecordedPath
from train.inspection.evidence import PURPOSE
from train.recipes.settings import EvaluationSettings, ReplaySettings
from train.substrate.source import LearningSource, Progress, silent
from train.types import ScoredItem
from trajectory.artifact import MOST_STEPS, ArtifactSpec
from trajectory.errors import ConfigurationError, HeadraceError
from trajectory.json_patch import pointer

if TYPE_CHECKING:
    from gepa.core.adapter import EvaluationBatch, ProposalFn
    from gepa.core.result import GEPAResult

NAME = "gepa"
"""What a version's manifest names as its proposer."""
_ALLOWED = """
SELECT s.trajectory_id, list(s.step_id ORDER BY s.step_index, s.step_id) AS steps
FROM steps s LEFT JOIN (
    SELECT step_id, list_contains(purposes, $purpose) AS purposed
    FROM eligible_steps WHERE tenant_id = $tenant
) e ON s.step_id = e.step_id
WHERE s.tenant_id = $tenant AND s.role_in_graph NOT IN ('shadow', 'discarded')
AND s.trajectory_id IN (SELECT unnest($trajectories::VARCHAR[]))
GROUP BY s.trajectory_id HAVING bool_and(coalesce(e.purposed, false))
"""
_PROMPT = """\
An assistant has this instruction:
```
<curr_param>
```

Here is what it did at some tasks with it, and what was right or wrong about it:
```
<side_info>
```

Write a better instruction. Find out what the tasks have in common, what the assistant does not know, and what \
it should do differently, and say that in plain sentences. Write what holds for tasks of this kind, and keep \
what is good already. Name no person and no value that belongs to one task alone. Use at most 2,500 characters.

Give the new instruction between ``` marks, and nothing else.
"""

type ReflectionModel = Callable[[str], str]
"""Answers a prompt in words."""
type Texts = dict[str, str]
"""Part of an artefact → its text, as the search sees a candidate."""


@dataclass(frozen=True, slots=True)
class SearchTasks:
    """Tasks that candidates are tried at, and the steps that each rests on."""

    found: HeldOutTasks
    steps: Mapping[str, Sequence[str]]
    """Trajectory → its steps; all of them allow the purpose ``evolve``."""


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """When a search ends."""

    proposals: int = 20
    """Texts that the reflection model is asked for."""
    tries: int = 1000
    """Episodes, about: a candidate that was begun is tried to its end."""
    at_once: int = 8
    """Tasks that the reflection model reads of before it writes."""


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """What a search found."""

    spec: ArtifactSpec | None
    """The candidate with its evidence; None where no text did better than the first."""
    tasks: int
    proposals: int
    tries: int
    before: float
    """Share of the tasks that were solved with the first text."""
    after: float
    """With the best one; it was chosen by these very tasks, so it promises nothing."""


def search_tasks(
    source: LearningSource,
    entries: Sequence[ScoredItem],
    settings: EvaluationSettings,
    *,
    tenant: str,
    most_steps: int = MOST_STEPS,
) -> SearchTasks:
    """Return the tasks of the train side that a search may read, chosen by the seed.

    Every step of an attempt must allow the purpose ``evolve``. A task's own record alone answers its
    calls, so that nothing of another one comes into what the reflection model reads.

    Args:
        source: the lake.
        entries: of the substrate.
        settings: how tasks are tried, and how many.
        tenant: whose.
        most_steps: that all tasks together may rest on.
    """
    mine = [one for one in entries if one.split == "train" and one.item.tenant_id == tenant]
    rows = source.query(
        _ALLOWED,
        parameters={
            "tenant": tenant,
            "purpose": PURPOSE,
            "trajectories": sorted({one.item.trajectory_id for one in mine}),
        },
    ).to_pylist()
    steps = {row["trajectory_id"]: tuple(row["steps"]) for row in rows}
    allowed = [one for one in mine if one.item.trajectory_id in steps]
    found = tasks_among(source, allowed, alone(settings), lending=())
    chosen, resting = [], set[str]()
    for task in found.tasks:
        more = resting.union(*(steps[one] for one in task.trajectories))
        if len(more) > most_steps:
            break
        chosen.append(task)
        resting = more
    fallen = {**found.fallen, "no_purpose_evolve": len(mine) - len(allowed)}
    return SearchTasks(replace(found, tasks=tuple(chosen), fallen=fallen), steps)


def alone(settings: EvaluationSettings) -> EvaluationSettings:
    """Return settings by which nothing but a task's own record answers its calls."""
    replay = (settings.replay or ReplaySettings()).model_copy(update={"answers": "task"})
    return settings.model_copy(update={"replay": replay})


def texts_of(spec: ArtifactSpec) -> Texts:
    """Return the parts of an artefact that a search rewrites.

    Raises:
        ConfigurationError: it has none.
    """
    found = {name: read for name, (read, _) in _places(spec).items()}
    if not found:
        raise ConfigurationError(
            "a search rewrites the text of a harness, the procedure of a skill, and descriptions of tools; "
            "facts each have evidence of their own, so `headrace artifact propose` draws them"
        )
    return found


def with_texts(spec: ArtifactSpec, texts: Mapping[str, str]) -> ArtifactSpec:
    """Return an artefact with other texts.

    Raises:
        ValidationError: it is no artefact any more (too long, say).
    """
    value = spec.model_dump(mode="json", exclude_none=True)
    for name, (_, path) in _places(spec).items():
        place: Any = value
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = texts[name]
    return ArtifactSpec.model_validate(value)


def _places(spec: ArtifactSpec) -> dict[str, tuple[str, tuple[str | int, ...]]]:
    """Return each part that may be rewritten: its text, and where it stands in the document."""
    if spec.harness is not None and spec.harness.append is not None:
        return {"append": (spec.harness.append, ("harness", "append"))}
    if spec.harness is not None and spec.harness.replace is not None:
        return {"new": (spec.harness.replace.new, ("harness", "replace", "new"))}
    if spec.skill is not None:
        return {"procedure": (spec.skill.procedure, ("skill", "procedure"))}
    patch = () if spec.tools is None else spec.tools.patch
    return {
        f"{number}:{one['path']}": (one["value"], ("tools", "patch", number, "value"))
        for number, one in enumerate(patch)
        if one["op"] != "test" and isinstance(one.get("value"), str)
        and pointer(one["path"])[-1] == "description"
    }  # fmt: skip


def require_gepa() -> None:
    """Refuse to begin where the package is missing.

    Raises:
        ConfigurationError: it is.
    """
    try:
        import gepa  # noqa: F401 - whether it is there
    except ImportError:
        raise ConfigurationError(
            "the search needs the package gepa, which is not installed: pip install 'headrace[gepa]'"
        ) from None


def search(
    spec: ArtifactSpec,
    tasks: SearchTasks,
    model: Path,
    settings: EvaluationSettings,
    reflect: ReflectionModel,
    *,
    budget: SearchBudget,
    folder: Path,
    progress: Progress = silent,
) -> SearchOutcome:
    """Look for texts with which a model solves more of the tasks.

    Args:
        spec: the artefact to begin with.
        tasks: what candidates are tried at.
        model: folder of the model that is given them.
        settings: how tasks are tried, and scored.
        reflect: writes new texts.
        budget: when it ends.
        folder: for what a verifier of the user's own reads while it works.
        progress: told how many episodes were tried.

    Raises:
        ConfigurationError: gepa is missing, or nothing of the artefact can be rewritten.
        HeadraceError: the reflection model or a scorer failed; nothing is found then.
    """
    require_gepa()
    from gepa.api import optimize

    first = texts_of(spec)
    asked = _KeptReflection(reflect)
    tried = _TriedCandidates(spec, tasks.found, model, alone(settings), folder, budget, progress)
    found: GEPAResult[float, int] = optimize(
        seed_candidate=first,
        trainset=[*tasks.found.tasks],
        adapter=tried,
        reflection_lm=asked,
        reflection_prompt_template=_PROMPT,
        reflection_minibatch_size=min(budget.at_once, len(tasks.found.tasks)),
        max_metric_calls=budget.tries,
        stop_callbacks=[lambda _: asked.failed is not None or asked.times >= budget.proposals],
        logger=_Silence(),
        track_best_outputs=False,
        cache_evaluation=True,
        seed=settings.seed,
    )
    if asked.failed is not None:
        raise asked.failed
    scores = found.val_aggregate_scores
    best = found.best_idx
    better = None
    if scores[best] > scores[0]:
        read = {step for one in tried.read for step in tasks.steps[one]}
        better = with_texts(spec, found.candidates[best]).model_copy(
            update={"proposer": NAME, "evidence": tuple(sorted({*spec.evidence, *read}))}
        )
    return SearchOutcome(
        better, len(tasks.found.tasks), asked.times, tried.episodes, scores[0], scores[best]
    )


class _Silence:
    """The log of a search: it would hold what people said."""

    def log(self, message: str) -> None:
        """Say nothing."""


@dataclass(slots=True)
class _KeptReflection:
    """The reflection model; gepa goes on after an error of it, so the first is kept."""

    reflect: ReflectionModel
    times: int = 0
    failed: HeadraceError | None = None

    def __call__(self, prompt: str | list[dict[str, Any]]) -> str:
        """Answer a prompt; only one with pictures is a list, and tasks have none."""
        self.times += 1
        try:
            return self.reflect(str(prompt))
        except HeadraceError as error:
            self.failed = error
            raise


@dataclass(slots=True)
class _TriedCandidates:
    """Tries candidates at tasks, as gepa asks for it; its type parameters are task, episode and score."""

    spec: ArtifactSpec
    found: HeldOutTasks
    model: Path
    settings: EvaluationSettings
    folder: Path
    budget: SearchBudget
    progress: Progress
    episodes: int = 0
    read: set[str] = field(default_factory=set)
    """Trajectories that the reflection model was shown."""
    propose_new_texts: "ProposalFn | None" = None
    """gepa's own way, by its reflection model."""

    def evaluate(
        self, batch: list[HeldOutTask], candidate: Texts, capture_traces: bool = False
    ) -> "EvaluationBatch[Episode | str, float]":
        """Let the model try tasks with a candidate; one that is no artefact solves none."""
        from gepa.core.adapter import EvaluationBatch

        try:
            spec = with_texts(self.spec, candidate)
        except ValidationError as error:
            why = f"It cannot be used: {error.errors()[0]['msg']}."
            none = [0.0] * len(batch)
            return EvaluationBatch(none, none, [why] * len(batch))
        once = {task.task_id: task for task in batch}
        episodes = try_tasks(
            self.model,
            replace(self.found, tasks=tuple(once.values())),
            self.settings.replay or ReplaySettings(),
            seed=self.settings.seed,
            shown=given(spec),
        )
        results = results_of(self.settings, episodes, report=self.folder / "episodes.jsonl")
        self.episodes += len(episodes)
        self.progress("search", self.episodes, self.budget.tries)
        solved: dict[str, list[bool]] = {}
        for result in results:
            solved.setdefault(result.task_id, []).append(result.success)
        scores = [sum(each) / len(each) for each in (solved[task.task_id] for task in batch)]
        first = {one.task.task_id: one for one in reversed(episodes)}
        traces: list[Episode | str] | None = None
        if capture_traces:
            traces = [first[task.task_id] for task in batch]
        return EvaluationBatch(scores, scores, traces)

    def make_reflective_dataset(
        self,
        candidate: Texts,  # noqa: ARG002 - gepa's signature
        eval_batch: "EvaluationBatch[Episode | str, float]",
        components_to_update: list[str],
    ) -> dict[str, list[dict[str, str]]]:
        """Return what the reflection model reads of episodes."""
        traces = eval_batch.trajectories or []
        for one in traces:
            if isinstance(one, Episode):
                self.read.update(one.task.trajectories)
        told = [_told(*one) for one in zip(traces, eval_batch.scores, strict=True)]
        return dict.fromkeys(components_to_update, told)


def _told(episode: Episode | str, score: float) -> dict[str, str]:
    if isinstance(episode, str):
        return {"Feedback": episode}
    asked = [one for one in episode.task.prompt if one["role"] not in ("system", "developer")]
    return {
        "Task": "\n".join(_lines(asked)),
        "What the assistant did": "\n".join(_lines(episode.messages)) or "Nothing.",
        "Feedback": "Right." if score >= 1 else " ".join(_wrong(episode)),
    }


def _wrong(episode: Episode) -> Iterator[str]:
    yield {
        "missed": "Wrong: it called a tool as no attempt at this task did.",
        "cut_off": "Wrong: it did not come to an end of its message.",
        "tool_rounds": "Wrong: it went on calling tools and gave no answer.",
    }.get(episode.ended or "", "Wrong.")
    right = next((one for one in episode.task.paths if one.rewarded), None)
    if right is not None:
        yield f"A right attempt: {_path(right)}"


def _path(path: RecordedPath) -> str:
    calls = [
        f"call {call.tool} with {call.arguments}, which answers {call.answer}"
        for turn in path.turns
        for call in turn
    ]
    said = [] if path.answer is None else [f"answer: {path.answer}"]
    return "; then ".join([*calls, *said])


def _lines(messages: Sequence[ChatMessage]) -> Iterator[str]:
    for message in messages:
        if message.get("content"):
            yield f"{message['role']}: {message['content']}"
        for call in message.get("tool_calls", ()):
            function = call["function"]
            given_ = json.dumps(function["arguments"], ensure_ascii=False)
            yield f"{message['role']} calls {function['name']} with {given_}"
