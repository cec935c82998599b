"""The trainer of ``grpo_live``: TRL's GRPOTrainer, with tools as they were logged, and nothing computed twice."""

from collections.abc import Mapping
from typing import Any

from train.chat import ChatMessage
from train.errors import TrainingError
from train.evaluation.environment import has_missed, tools_key
from train.runs.epoch_order import resumable
from train.shared_prompts import sharing_forward


def live_trainer_class() -> Any:
    """Return the GRPO trainer that shows the tools as they were logged (TRL is imported here)."""
    import torch
    from trl import GRPOTrainer

    class LiveTrainer(resumable(GRPOTrainer)):  # type: ignore[misc]
        """GRPOTrainer whose data set names rows that never pass through Arrow.

        Arrow would give each tool call the arguments of all others, as nulls. An episode that called
        what was never recorded has no reward: it moves nothing and is not in its group's baseline.
        What moves nothing is not computed: often most of a batch, because most groups ended alike.
        Equal episodes are computed once, and the prompt of several is read once.
        """

        def __init__(
            self,
            *,
            rows: Mapping[str, list[Any]],
            definitions: Mapping[str, list[dict[str, Any]]],
            by_mean: bool,
            **options: Any,
        ) -> None:
            self._rows = rows
            self._by_mean = by_mean
            self._means: Any = None
            super().__init__(**options)
            self._env_tools = {key: list(tools) for key, tools in definitions.items()}

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            batch = super()._generate_and_score_completions(
                [self._row(entry["place"]) for entry in inputs]
            )
            if self._by_mean:
                first = self.accelerator.process_index * len(inputs)
                batch["advantages"] /= self._means[first : first + len(inputs)]
            return batch if self._each_counts() else _merged(batch)

        def _generate(self, prompts: Any) -> Any:
            # Where there is an adapter, only the model around the one that generates knows its precision.
            with self.accelerator.autocast():
                return super()._generate(prompts)

        def _calculate_rewards(self, inputs: Any, *others: Any) -> Any:
            rewards = super()._calculate_rewards(inputs, *others)
            if self.environments is not None:
                missed = [has_missed(world) for world in self.environments]
                everywhere = self.accelerator.gather(torch.tensor(missed, device=rewards.device))
                rewards[everywhere] = torch.nan
                mode = "train" if self.model.training else "eval"
                self._metrics[mode]["replay/missed"].append(everywhere.float().mean().item())
            if self._by_mean:
                self._means = group_means(rewards, self.num_generations)
            return rewards

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            return super()._compute_loss(model, self._moving(inputs))

        def _get_per_token_logps_and_entropies(
            self,
            model: Any,
            input_ids: Any,
            attention_mask: Any,
            logits_to_keep: int,
            **others: Any,
        ) -> Any:
            # Checkpointed layers keep no cache, experts' loss counts every token, and processes read in step.
            several = self.accelerator.num_processes > 1
            if not (several or self.aux_loss_enabled or self.args.gradient_checkpointing):
                model = sharing_forward(model, input_ids.shape[1] - logits_to_keep)
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, **others
            )

        def _moving(self, inputs: dict[str, Any]) -> dict[str, Any]:
            """Leave out the episodes without an advantage; TRL divides by the tokens of all, counted before."""
            if self._each_counts():
                return inputs
            moving = inputs["advantages"] != 0
            if not moving.any():
                moving[0] = True  # a loss of 0 that still has a gradient
            return {
                name: value[moving] if torch.is_tensor(value) and value.ndim else value
                for name, value in inputs.items()
            }

        def _each_counts(self) -> bool:
            """Tell whether an episode is in the loss by more than its advantage.

            Several processes put their rows together, so each needs equally many.
            """
            several = self.accelerator.num_processes > 1
            return bool(self.beta or self.aux_loss_enabled or several)

        def _row(self, place: int) -> dict[str, Any]:
            prompt: list[ChatMessage] = self._rows["prompt"][place]
            return {
                "prompt": [dict(message) for message in prompt],
                "place": place,
                "tenant": self._rows["tenant"][place],
                "environment": tools_key(self._rows["tools"][place]),
            }

    return LiveTrainer


def group_means(rewards: Any, size: int) -> Any:
    """Return of each episode the mean reward of its group; 1 where nothing was rewarded or could be scored.

    Raises:
        TrainingError: a reward is not between 0 and 1.
    """
    import torch

    if (rewards < 0).any() or (rewards > 1).any():
        raise TrainingError(
            "options.scale: mean is for rewards of 0 and 1; change the reward, or set scale: deviation"
        )
    means = rewards.nansum(1).where(~rewards.isnan().all(1), torch.nan).view(-1, size).nanmean(1)
    return means.where(means > 0, 1.0).repeat_interleave(size)


def _merged(batch: dict[str, Any]) -> dict[str, Any]:
    """Give one of equal episodes the advantages of all: the others then move nothing, and the sum is the same."""
    import torch

    advantages = batch["advantages"]
    count = len(advantages)
    columns = [value for value in batch.values() if torch.is_tensor(value) and value.ndim]
    rows: Any = torch.cat([column.reshape(count, -1).double() for column in columns], 1)
    _, places, sizes = rows.unique(dim=0, return_inverse=True, return_counts=True)
    numbers = torch.arange(count, device=places.device)
    first = torch.full_like(sizes, count).scatter_reduce(0, places, numbers, "amin")
    summed = torch.zeros_like(advantages)
    summed[first] = advantages[first] * sizes
    return {**batch, "advantages": summed}
