"""GRPO with fresh generations: the model tries logged tasks again, in a replayed tool environment.

The prompts are the beginnings of governed conversations, exactly as the agent asked; tools answer
from the record (or from an environment of the user's own); a reward function or a reward model
scores the whole episode. TRL's GRPOTrainer generates, calls the tools, masks what they said and
learns (DeepSeekMath, arXiv 2402.03300). Ours are the environment and the tool definitions: those
that the agent was shown in production, not ones made up from Python signatures.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from train.chat import ChatMessage
from train.chat_template import TemplateRefusedError
from train.evaluation.environment import (
    RecordedCall,
    RecordedTools,
    has_missed,
    is_reserved,
    recorded_calls,
    replay_environment,
    tool_names,
    tools_key,
)
from train.evaluation.replay_env import Follower, RecordedPath, recorded_path
from train.evaluation.reward_models import RewardModel
from train.recipes.base import (
    RowBuilder,
    Rows,
    Selection,
    TrainerParts,
    conversation_of,
    counted,
    limited,
    train_side,
)
from train.recipes.settings import RecipeSpec
from train.rewards import episode_scorer, load_object, load_reward
from train.runs.epoch_order import resumable
from train.runs.rows import Masker
from train.shared_prompts import share_prompts, sharing_forward
from train.substrate.content import ContentStore, Conversation
from train.types import ScoredItem
from trajectory.documents.document import StrictModel
from trajectory.errors import ConfigurationError
from trajectory.plugins import ENVIRONMENTS

REPLAY = "replay"


class GrpoLiveOptions(StrictModel):
    """Options of ``grpo_live`` alone."""

    reward: str | None = None
    """A plugin's name, or ``package.module:function``: called with prompt and completion messages of a
    whole episode."""
    reward_model: Path | None = None
    """Folder of a sequence classification model with one label, as recipe ``reward_model`` makes."""
    environment: str = REPLAY
    """``replay``: recorded tool answers; or an environment as TRL takes it: a plugin's name, or
    ``package.module:Class``."""
    group_size: int = Field(default=8, ge=2)
    """Episodes that the model tries per task."""
    temperature: float = Field(default=1.0, gt=0)
    completion_tokens: int = Field(default=512, ge=1)
    """The most tokens of an episode after its prompt, tool answers included."""
    tool_rounds: int = Field(default=8, ge=0)
    """How often an episode may call tools and go on."""
    epsilon: float = Field(default=0.2, gt=0, lt=1)
    """The ratio to the policy that sampled is clipped to 1 ± this."""
    beta: float = Field(default=0.0, ge=0)
    """Weight of the KL to the base."""
    updates: int = Field(default=1, ge=1)
    """Optimizer passes over each batch of episodes."""
    vllm: bool = False
    """Generate with vLLM in the trainer's process; it must be installed."""

    @model_validator(mode="after")
    def _one_reward(self) -> "GrpoLiveOptions":
        if self.reward is not None and self.reward_model is not None:
            raise ValueError("name a reward function or a reward model, not both")
        return self

    @property
    def has_reward(self) -> bool:
        """Whether anything can score an episode."""
        return (
            self.reward is not None or self.reward_model is not None or self.environment != REPLAY
        )


class LiveRecipe:
    """Learns from what the model itself does at logged tasks."""

    name = "grpo_live"
    purpose = "train_rl"
    makes = "policy"
    options: type[StrictModel] = GrpoLiveOptions

    def select(self, items: Sequence[ScoredItem], spec: RecipeSpec) -> Selection:
        """Choose one unit per beginning of a conversation; its attempts lend their tool answers."""
        options = GrpoLiveOptions.model_validate(spec.options)
        fallen: Counter[str] = Counter()
        usable = train_side(items, fallen)
        if not options.has_reward:
            fallen["no_reward_function"] += len(usable)
            usable = []
        tasks: dict[tuple[str, ...], list[ScoredItem]] = {}
        for entry in usable:
            tasks.setdefault(entry.item.task, []).append(entry)
        units = [tuple(attempts) for attempts in tasks.values()]
        return Selection(limited(units, spec.data.maximum_items, fallen), counted(fallen))

    def rows(
        self, selection: Selection, content: ContentStore, masker: Masker, spec: RecipeSpec
    ) -> Rows:
        options = GrpoLiveOptions.model_validate(spec.options)
        builder = RowBuilder("prompt", "tenant", "tools", "recorded", "paths")
        for attempts in selection.units:
            conversations = [
                (entry, found)
                for entry in attempts
                if (found := conversation_of(entry, content, builder)) is not None
            ]
            if not conversations:
                continue
            entry, first = conversations[0][0], conversations[0][1].views[0]
            prompt = first.prompt
            if options.environment == REPLAY and any(map(is_reserved, tool_names(first.tools))):
                builder.dropped["tool_name_reserved"] += 1
                continue
            if masker.forges(prompt, first.tools):
                builder.dropped["special_token_in_content"] += 1
                continue
            try:
                length = len(masker.prompt_ids(prompt, tools=first.tools))
            except TemplateRefusedError:
                builder.dropped["template_refused"] += 1
                continue
            if length + options.completion_tokens > masker.max_length:
                builder.dropped["too_long"] += 1
                continue
            builder.add(
                " ".join(entry.item.item_id for entry, _ in conversations),
                prompt=list(prompt),
                tenant=entry.item.tenant_id,
                tools=list(first.tools),
                recorded=[
                    call for _, found in conversations for call in recorded_calls(found.messages)
                ],
                paths=[
                    path for one, found in conversations if (path := _path(one, found)) is not None
                ],
            )
        return builder.build()

    def trainer(self, parts: TrainerParts) -> Any:
        from trl import GRPOConfig

        options = GrpoLiveOptions.model_validate(parts.spec.options)
        _check_batch(parts, options)
        # Between the updates on one batch of episodes nothing could be resumed exactly.
        every = -(-parts.arguments["save_steps"] // options.updates) * options.updates
        arguments = GRPOConfig(
            **{**parts.arguments, "save_steps": every},
            num_generations=options.group_size,
            num_iterations=options.updates,
            max_completion_length=options.completion_tokens,
            max_tool_calling_iterations=options.tool_rounds,
            temperature=options.temperature,
            epsilon=options.epsilon,
            beta=options.beta,
            log_completions=False,
            **_vllm(options),
        )
        columns = parts.rows.columns
        definitions = {tools_key(tools): tools for tools in columns["tools"]}
        scorers = _scorers(options, definitions, arguments.device)
        environments = _environments(options, columns)
        share_prompts(parts.model)
        try:
            return live_trainer_class()(
                rows=columns,
                definitions=definitions,
                args=arguments,
                reward_funcs=scorers,
                **parts.for_trainer({"place": list(range(len(parts.rows)))}),
                environment_factory=environments,
            )
        except ValueError as error:
            raise ConfigurationError(
                f"{parts.base}: this model cannot call tools in training ({error}); give its tokenizer "
                "a response_template (how its chat template's tool calls are read back), or name its tools anew"
            ) from error


def _check_batch(parts: TrainerParts, options: GrpoLiveOptions) -> None:
    per_step = parts.spec.rows_per_step
    if per_step % options.group_size:
        raise ConfigurationError(
            f"training.batch_size × accumulation × launch.processes is {per_step}: it must be a "
            f"multiple of options.group_size {options.group_size}"
        )


def _vllm(options: GrpoLiveOptions) -> dict[str, Any]:
    if not options.vllm:
        return {}
    from importlib.util import find_spec

    if find_spec("vllm") is None:
        raise ConfigurationError(
            "options.vllm: vLLM is not installed here; install it beside Headrace, or set vllm: false"
        )
    return {"use_vllm": True, "vllm_mode": "colocate"}


def _scorers(
    options: GrpoLiveOptions, definitions: Mapping[str, list[dict[str, Any]]], device: Any
) -> list[Any]:
    """Return what scores an episode; nothing where the environment does."""
    if options.reward is not None:
        name = options.reward.rpartition(":")[2]
        return [episode_scorer(load_reward(options.reward), name)]
    if options.reward_model is not None:
        return [RewardModel(options.reward_model, definitions, device)]
    return []


def _environments(
    options: GrpoLiveOptions, columns: Mapping[str, list[Any]]
) -> dict[str, Any] | None:
    """Return one environment per set of tools, by :func:`tools_key`; None where agents had no tools."""
    sets = {tools_key(tools): tools for tools in columns["tools"]}
    if options.environment != REPLAY:
        own = load_object(options.environment, setting="options.environment", group=ENVIRONMENTS)
        return dict.fromkeys(sets, own)
    if not any(sets.values()):
        return None
    recorded = RecordedTools(_calls(columns))

    def begin(row: Mapping[str, Any]) -> Follower:
        return Follower(columns["paths"][row["place"]], recorded, tenant=row["tenant"])

    return {key: replay_environment(begin, tools) for key, tools in sets.items()}


def _path(entry: ScoredItem, found: Conversation) -> RecordedPath | None:
    return recorded_path(found.messages[found.trained[0] :], rewarded=entry.rewarded)


def _calls(columns: Mapping[str, list[Any]]) -> list[tuple[str, RecordedCall]]:
    pairs = zip(columns["tenant"], columns["recorded"], strict=True)
    return [(tenant, call) for tenant, calls in pairs for call in calls]


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
            **options: Any,
        ) -> None:
            self._rows = rows
            super().__init__(**options)
            self._env_tools = {key: list(tools) for key, tools in definitions.items()}

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            batch = super()._generate_and_score_completions(
                [self._row(entry["place"]) for entry in inputs]
            )
            return batch if self._each_counts() else _merged(batch)

        def _generate(self, prompts: Any) -> Any:
            # Where there is an adapter, only the model around the one that generates knows its precision.
            with self.accelerator.autocast():
                return super()._generate(prompts)

        def _calculate_rewards(self, inputs: Any, *others: Any) -> Any:
            rewards = super()._calculate_rewards(inputs, *others)
            if self.environments is None:
                return rewards
            missed = [has_missed(world) for world in self.environments]
            everywhere = self.accelerator.gather(torch.tensor(missed, device=rewards.device))
            rewards[everywhere] = torch.nan
            mode = "train" if self.model.training else "eval"
            self._metrics[mode]["replay/missed"].append(everywhere.float().mean().item())
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


RECIPE = LiveRecipe()
