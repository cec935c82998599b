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
from typing import Any, Literal

from pydantic import Field, model_validator

from train.chat_template import TemplateRefusedError
from train.evaluation.environment import (
    RecordedCall,
    RecordedTools,
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
from train.recipes.live_trainer import live_trainer_class
from train.recipes.settings import RecipeSpec
from train.rewards import episode_scorer, load_object, load_reward
from train.runs.rows import Masker
from train.shared_prompts import share_prompts
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
    scale: Literal["deviation", "mean"] = "deviation"
    """What an advantage is divided by: the deviation of its group's rewards (GRPO), or their mean (MaxRL, arXiv
    2602.02710), for rewards of 0 and 1. By the mean, failures that are frequent count more than those that are rare:
    a bias to one answer is drawn back, where the deviation leaves it alone."""
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
            scale_rewards="group" if options.scale == "deviation" else "none",
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
                by_mean=options.scale == "mean",
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


RECIPE = LiveRecipe()
