"""GRPO on logged groups of attempts, with the exact tokens and logprobs of the engine.

Several recorded attempts at one task take the place of fresh generations. An attempt is one sequence, from the
first prompt to the last answer; what came from outside (tool results) is masked. TRL's GRPOTrainer computes
advantages and loss (or takes each step's advantage from the table ``credits``); two things are ours: the rollout
hands out logged attempts, and the ratio is taken against the **behaviour** policy's logged logprobs. Forgetting
the latter destroys a model while the trainer's own metrics stay flat. Nothing is tokenised again, and a missing
logprob is never made up.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from train.recipes.base import (
    RowBuilder,
    Rows,
    Selection,
    TrainerParts,
    counted,
    groups_with_contrast,
    limited,
    train_side,
)
from train.recipes.credit import CreditSettings
from train.recipes.settings import RecipeSpec
from train.runs.epoch_order import resumable
from train.runs.rows import Masker
from train.substrate.content import ContentStore
from train.types import ScoredItem
from trajectory.documents.document import StrictModel
from trajectory.errors import ConfigurationError


class GrpoReplayOptions(StrictModel):
    """Options of ``grpo_replay`` alone."""

    group_size: int = Field(default=4, ge=2)
    """Attempts per task; smaller groups fall away, of larger ones some are drawn."""
    epsilon: float = Field(default=0.2, gt=0, lt=1)
    """The ratio to the behaviour policy is clipped to 1 ± this."""
    off_policy_threshold: float | None = Field(default=0.1, gt=0)
    """Failed attempts whose mean KL to the behaviour policy is larger are left out (None: never)."""
    beta: float = Field(default=0.0, ge=0)
    """Weight of the KL to the base."""
    credit: CreditSettings | None = None
    """None: TRL compares whole attempts within their group. Else each step has its own advantage,
    and ``group_size`` only says how many attempts make one row: they need not share a task."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One logged attempt as one sequence."""

    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    env_mask: list[int]
    """1 where the model spoke."""
    advantages: list[float]
    """The credit of the step that each token belongs to; empty without ``options.credit``."""


def join_steps(entry: ScoredItem, content: ContentStore) -> Attempt | str:
    """Return an item's steps as one sequence, or the reason why there is none."""
    keys = [(entry.item.tenant_id, step) for step in entry.item.step_ids]
    if any(key not in content.tokens for key in keys):
        return "tokens_not_exact"
    steps = [content.tokens[key] for key in keys]
    if content.advantages and any(key not in content.advantages for key in keys):
        return "no_credit"
    attempt = Attempt(list(steps[0].prompt_ids), [], [], [], [])
    for key, step in zip(keys, steps, strict=True):
        seen = [*attempt.prompt_ids, *attempt.completion_ids]
        outside = list(step.prompt_ids)[len(seen) :]
        if list(step.prompt_ids)[: len(seen)] != seen:
            # The client rendered the history anew: these steps are no single sequence.
            return "prompt_rewritten"
        attempt.completion_ids.extend([*outside, *step.completion_ids])
        attempt.logprobs.extend([*(0.0 for _ in outside), *step.logprobs])
        attempt.env_mask.extend([*(0 for _ in outside), *(1 for _ in step.completion_ids)])
        if content.advantages:
            credit = content.advantages[key]
            attempt.advantages.extend(
                [*(0.0 for _ in outside), *(credit for _ in step.completion_ids)]
            )
    return attempt


class ReplayRecipe:
    """Learns from the contrast between logged attempts at the same task."""

    name = "grpo_replay"
    purpose = "train_rl"
    makes = "policy"
    options: type[StrictModel] = GrpoReplayOptions

    def select(self, items: Sequence[ScoredItem], spec: RecipeSpec) -> Selection:
        options = GrpoReplayOptions.model_validate(spec.options)
        fallen: Counter[str] = Counter()
        usable = []
        for entry in train_side(items, fallen):
            if entry.item.capture_level == "tokens":
                usable.append(entry)
            else:
                fallen["no_exact_tokens"] += 1
        if options.credit is not None:
            alone = [(entry,) for entry in usable]
            return Selection(limited(alone, spec.data.maximum_items, fallen), counted(fallen))
        groups = []
        for group in groups_with_contrast(usable, fallen):
            if len(group) < options.group_size:
                fallen["group_too_small"] += len(group)
            else:
                groups.append(group)
        units = limited(groups, spec.data.maximum_items, fallen)
        return Selection(units=units, fallen=counted(fallen))

    def rows(
        self, selection: Selection, content: ContentStore, masker: Masker, spec: RecipeSpec
    ) -> Rows:
        options = GrpoReplayOptions.model_validate(spec.options)
        builder = RowBuilder("prompt", "attempts", "rewards", "all_ids")
        draw = random.Random(spec.training.seed)  # noqa: S311 (no secret)
        if options.credit is not None and not content.advantages:
            raise ConfigurationError(
                f"the lake has no credits by {options.credit.algorithm} with these parameters and "
                "this substrate's weights, or they compare with attempts that may be learned from no more; "
                f"run `headrace credit compute {options.credit.algorithm} --substrate NAME` first"
            )
        for chosen in (
            self._credited(selection, content, masker, options, builder, draw)
            if options.credit is not None
            else self._contrasted(selection, content, masker, options, builder, draw)
        ):
            builder.add(
                " ".join(entry.item.item_id for entry, _ in chosen),
                prompt=str(len(builder)),
                attempts=[attempt for _, attempt in chosen],
                rewards=[entry.reward for entry, _ in chosen],
                all_ids=[t for _, a in chosen for t in (*a.prompt_ids, *a.completion_ids)],
            )
        return builder.build()

    def _contrasted(
        self,
        selection: Selection,
        content: ContentStore,
        masker: Masker,
        options: GrpoReplayOptions,
        builder: RowBuilder,
        draw: random.Random,
    ) -> Iterator[list[tuple[ScoredItem, Attempt]]]:
        """Yield attempts at one task, some rewarded and some not."""
        for group in selection.units:
            usable = _whole_attempts(group, content, masker, builder)
            chosen = _with_contrast(usable, options.group_size, draw)
            if not chosen:
                builder.dropped["group_lost_contrast"] += len(usable)
                continue
            builder.dropped["attempt_not_drawn"] += len(usable) - len(chosen)
            yield chosen

    def _credited(
        self,
        selection: Selection,
        content: ContentStore,
        masker: Masker,
        options: GrpoReplayOptions,
        builder: RowBuilder,
        draw: random.Random,
    ) -> Iterator[list[tuple[ScoredItem, Attempt]]]:
        """Yield attempts that have some credit, whatever their task, so many at a time."""
        usable = []
        for pair in _whole_attempts(selection.items, content, masker, builder):
            if any(pair[1].advantages):
                usable.append(pair)
            else:
                builder.dropped["credit_is_zero"] += 1
        draw.shuffle(usable)
        size = options.group_size
        for start in range(0, len(usable) - size + 1, size):
            yield usable[start : start + size]
        builder.dropped["attempt_not_drawn"] += len(usable) % size

    def trainer(self, parts: TrainerParts) -> Any:
        from trl import GRPOConfig

        options = GrpoReplayOptions.model_validate(parts.spec.options)
        per_step = parts.spec.rows_per_step
        if per_step % options.group_size or len(parts.rows) * options.group_size < per_step:
            raise ConfigurationError(
                f"training.batch_size × accumulation × launch.processes is {per_step}: it must be a "
                f"multiple of options.group_size {options.group_size} and hold no more than the {len(parts.rows)} groups"
            )
        arguments = GRPOConfig(
            **parts.arguments,
            num_generations=options.group_size,
            max_completion_length=parts.spec.data.max_length,
            epsilon=options.epsilon,
            beta=options.beta,
            off_policy_mask_threshold=options.off_policy_threshold,
            log_completions=False,
        )
        return replay_trainer_class()(
            parts.rows.columns["attempts"],
            parts.rows.columns["rewards"],
            args=arguments,
            **parts.for_trainer({"prompt": parts.rows.columns["prompt"]}),
        )


def _whole_attempts(
    entries: Sequence[ScoredItem], content: ContentStore, masker: Masker, builder: RowBuilder
) -> list[tuple[ScoredItem, Attempt]]:
    """Return the attempts that are one sequence and short enough; the others are counted."""
    usable = []
    for entry in entries:
        attempt = join_steps(entry, content)
        if isinstance(attempt, str):
            builder.dropped[attempt] += 1
        elif len(attempt.prompt_ids) + len(attempt.completion_ids) > masker.max_length:
            builder.dropped["too_long"] += 1
        else:
            usable.append((entry, attempt))
    return usable


def _with_contrast(
    usable: list[tuple[ScoredItem, Attempt]], size: int, draw: random.Random
) -> list[tuple[ScoredItem, Attempt]]:
    """Draw so many attempts that at least one was rewarded and one was not; none if impossible."""
    good = [pair for pair in usable if pair[0].rewarded]
    bad = [pair for pair in usable if not pair[0].rewarded]
    if not good or not bad or len(usable) < size:
        return []
    kept = [draw.choice(good), draw.choice(bad)]
    rest = [pair for pair in usable if pair not in kept]
    return [*kept, *draw.sample(rest, size - 2)]


def replay_trainer_class() -> Any:
    """Return the GRPO trainer that replays logged attempts (TRL is imported here)."""
    from trl import GRPOTrainer

    class ReplayTrainer(resumable(GRPOTrainer)):  # type: ignore[misc]
        """GRPOTrainer whose generations are logged attempts, named by the row's ``prompt``."""

        def __init__(
            self,
            attempts: Sequence[Sequence[Attempt]],
            rewards: Sequence[Sequence[float]],
            **options: Any,
        ) -> None:
            self._attempts = attempts
            self._logged_rewards = rewards
            super().__init__(reward_funcs=[_logged_reward], rollout_func=_replay, **options)

        def logged(self, prompts: Sequence[str]) -> list[tuple[Attempt, float]]:
            """Return one attempt and its reward per prompt; the trainer repeats each G times."""
            size = self.num_generations
            offset = self.accelerator.process_index * len(prompts)
            places = [(int(prompt), (offset + i) % size) for i, prompt in enumerate(prompts)]
            return [(self._attempts[g][i], self._logged_rewards[g][i]) for g, i in places]

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            out = super()._generate_and_score_completions(inputs)
            # Without this the ratio would be taken against the model itself, and be 1.
            out["old_per_token_logps"] = out["sampling_per_token_logps"]
            credit = [a.advantages for a, _ in self.logged([row["prompt"] for row in inputs])]
            if all(credit):
                out["advantages"] = _padded(credit, out["completion_ids"])
            return out

    return ReplayTrainer


def _padded(credit: Sequence[Sequence[float]], like: Any) -> Any:
    """Return the advantage of every completion token; 0 where the batch was filled up on the right."""
    import torch

    out = torch.zeros(like.shape, dtype=torch.float32, device=like.device)
    for row, values in enumerate(credit):
        out[row, : len(values)] = torch.tensor(values, device=like.device)
    return out


def _replay(prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
    logged = trainer.logged(prompts)
    return {
        "prompt_ids": [attempt.prompt_ids for attempt, _ in logged],
        "completion_ids": [attempt.completion_ids for attempt, _ in logged],
        "logprobs": [attempt.logprobs for attempt, _ in logged],
        "env_mask": [attempt.env_mask for attempt, _ in logged],
        "logged_reward": [reward for _, reward in logged],
    }


def _logged_reward(logged_reward: Sequence[float], **_: Any) -> list[float]:
    """The reward of each attempt, as the verifier gave it for the whole episode."""
    return list(logged_reward)


RECIPE = ReplayRecipe()
