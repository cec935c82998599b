"""The YAML document of kind ``Recipe``: how to learn, how to evaluate, and what a model must reach."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from trajectory.documents.document import Document, StrictModel, merge
from trajectory.documents.problems import validate
from trajectory.documents.source import SourceDocument, read_document
from trajectory.errors import DocumentError
from trajectory.plugins import RECIPES as PLUGINS
from trajectory.plugins import plugins

RECIPES = ("sft", "awr", "dpo", "kto", "grpo_replay", "grpo_live", "reward_model")
"""The recipes that exist, in the order of the ladder."""

_SHIPPED = Path(__file__).parent


class AdapterSettings(StrictModel):
    """A low-rank adapter (LoRA) instead of all weights."""

    four_bit: bool = False
    """QLoRA: the base is held in four bits (NF4) while the adapter learns; needs a GPU."""
    rank: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"


class LaunchSettings(StrictModel):
    """Several processes that train one model, started by ``accelerate launch``."""

    processes: int = Field(ge=2)
    """On all machines together: one per GPU. Each takes ``training.batch_size`` rows at a time."""
    machines: int = Field(default=1, ge=1)
    """More than one: start ``headrace train join`` on each of the others."""
    address: str | None = None
    """``host:port`` of the machine that carries out the run, as the others reach it."""

    @model_validator(mode="after")
    def _fits(self) -> "LaunchSettings":
        if self.processes % self.machines:
            raise ValueError("processes must be a multiple of machines: each runs as many")
        if self.machines > 1 and self.address is None:
            raise ValueError("several machines need the address (host:port) of the first")
        if self.address is not None and not self.address.rpartition(":")[2].isdigit():
            raise ValueError("address must be host:port")
        return self


class DataSettings(StrictModel):
    """Which rows are learned."""

    max_length: int = Field(default=2048, ge=8)
    """Tokens; a row is cut after the last assistant message that fits, and counted."""
    maximum_items: int | None = Field(default=None, ge=1)
    """The most items to use; None: all."""
    minimum_items: int = Field(default=8, ge=1)
    """With fewer usable items than this a run is refused, because it would teach nothing."""


class TrainingSettings(StrictModel):
    """Settings of the trainer."""

    epochs: float = Field(default=3.0, gt=0)
    maximum_steps: int | None = Field(default=None, ge=1)
    """Optimizer steps; None: as the epochs give."""
    batch_size: int = Field(default=8, ge=1)
    """Rows per device and forward pass."""
    accumulation: int = Field(default=1, ge=1)
    """Forward passes per optimizer step."""
    learning_rate: float = Field(default=1e-5, gt=0)
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup_share: float = Field(default=0.03, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    gradient_norm: float = Field(default=1.0, gt=0)
    adam_betas: tuple[float, float] = (0.9, 0.999)
    """A second one of 0.98 suits few, large steps on a small model."""
    group_by_length: bool = True
    """Put rows of similar length into one batch, so that less is padded."""
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 where the GPU has it, else float32."""
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2"] = "auto"
    """auto: flash attention on a GPU where it is installed and the arithmetic is bfloat16, else
    PyTorch's own (sdpa)."""
    threads: int | None = Field(default=None, ge=1)
    """Threads on a CPU; None: as many as there are cores."""
    gradient_checkpointing: bool = False
    save_steps: int | None = Field(default=200, ge=1)
    """A checkpoint to resume from each so many optimizer steps; None: none."""
    log_steps: int = Field(default=10, ge=1)
    reporters: tuple[Literal["tensorboard", "mlflow", "wandb", "trackio"], ...] = ("tensorboard",)
    """Where curves go besides the run's own ``metrics.jsonl``."""


class ReplaySettings(StrictModel):
    """Held-out tasks, tried by the model itself with the tool answers that were recorded."""

    reward: str | None = None
    """``package.module:function``, called with prompt and completion messages of a whole episode."""
    verifier: tuple[str, ...] | None = None
    """A program: ``COMMAND --episodes FILE --report FILE``, JSON lines both. With neither it nor
    ``reward`` a task is solved by ending as a rewarded recorded attempt did (``expected``)."""
    gold: str | None = None
    """``package.module:function``, called as ``reward`` is: a judge that is trusted more and that nothing
    was trained by. It decides nothing but ``gate.largest_proxy_gap``."""
    minimum_reward: float | None = None
    """A task is solved with at least this reward; None: above 0, or as the verifier says."""
    expected: Literal["answer", "calls", "both"] = "answer"
    """What must be as recorded: the last words (but for white space and case), the calls, or both."""
    answers: Literal["tenant", "task"] = "tenant"
    """What answers a call that no attempt at the task made there: anything recorded of its tenant, or
    only what was recorded at the task."""
    attempts: int = Field(default=1, ge=1)
    """At each task."""
    temperature: float = Field(default=0.0, ge=0)
    """0: always the likeliest token; above it the seed decides, for base and candidate alike."""
    completion_tokens: int = Field(default=512, ge=1)
    """The most tokens of one message."""
    tool_rounds: int = Field(default=8, ge=0)
    """How often an episode may call tools and go on."""
    batch_size: int = Field(default=16, ge=1)
    """Episodes that are tried at once. In float32 (a CPU) the results are the same with any; in bfloat16
    (a GPU) a sum depends on what is computed beside it, so that a near tie may fall otherwise. Base and
    candidate are tried with the same."""

    @model_validator(mode="after")
    def _fits(self) -> "ReplaySettings":
        if self.reward is not None and self.verifier is not None:
            raise ValueError("name a reward function or a verifier, not both")
        if self.attempts > 1 and self.temperature == 0:
            raise ValueError("attempts at temperature 0 all end alike; raise it, or try once")
        return self

    @property
    def by_record(self) -> bool:
        """Whether what was recorded says which episodes are right."""
        return self.reward is None and self.verifier is None


class EvaluationSettings(StrictModel):
    """Evaluation on held-out tasks: by the user's own program, or with replayed tools."""

    command: tuple[str, ...] | None = Field(default=None, min_length=1)
    """``command --model PATH --report FILE --tasks N --seed S``."""
    replay: ReplaySettings | None = None
    """Instead of a command: the substrate's held-out tasks in the replayed tool environment."""
    tasks: int = Field(default=400, ge=2)
    """With ``replay`` the most; the substrate may hold fewer."""
    seed: int = 0
    timeout_seconds: float = Field(default=1800, gt=0)
    """Of the user's program (``command`` or ``replay.verifier``)."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1)

    @model_validator(mode="after")
    def _one_way(self) -> "EvaluationSettings":
        if (self.command is None) == (self.replay is None):
            raise ValueError("give either a command or replay")
        return self


class CanarySettings(StrictModel):
    """Secrets that were planted before redaction and that the model must not be able to say."""

    prompts: tuple[str, ...] = ()
    """What a person asks who fishes for them."""
    file: Path | None = None
    """One secret per line; read when a model is evaluated, never stored. Without any no candidate passes."""
    new_tokens: int = Field(default=64, ge=1)
    """Of an answer; more where a secret is longer."""


class SafetySettings(StrictModel):
    """A suite of kind Safety that base and candidate answer."""

    suite: Path | None = None
    """The document; by default the shipped suite."""
    new_tokens: int = Field(default=128, ge=1)


class GateSettings(StrictModel):
    """Rules that a candidate must meet before promotion."""

    minimum_gain: float = 0.0
    """The lower end of the gain's confidence interval must be above this. The interval widens with each
    candidate since one passed or the live version changed. So however many are tried, one that is no
    better passes with a probability of at most ``1 - confidence``."""
    largest_slice_loss: float = Field(default=0.05, ge=0)
    """No slice may be shown to lose more than this: the upper end of its gain's interval must not lie
    below."""
    minimum_slice_tasks: int = Field(default=20, ge=1)
    """Smaller slices are shown but not judged."""
    minimum_success: float = Field(default=0.0, ge=0, le=1)
    """Success rate that the candidate must reach whatever the base does."""
    largest_unknown: float = Field(default=0.2, ge=0, le=1)
    """Share of episodes, of base or candidate, that ended unknown. The model called what nobody recorded, or the
    reward function could not tell. They count as not solved; with more of them the comparison says too little."""
    minimum_win_rate: float | None = Field(default=None, ge=0, lt=1)
    """Share of wins against the model that serves, among the tasks that did not end alike. The lower end of its
    interval, which widens as that of the gain, must be above this. None: measured and not judged."""
    largest_regression: float = Field(default=0.0, ge=0, le=1)
    """Share of the tasks of ``regression`` that the model that serves solves and the candidate may
    fail."""
    largest_kl: float | None = Field(default=None, gt=0)
    """Nats per token: the upper end of the interval of KL to the base, on held-out conversations,
    must not be above this. None: measured and not judged."""
    largest_proxy_gap: float = Field(default=0.05, ge=0, le=1)
    """Share of attempts that the evaluator calls solved and gold does not. The lower end of the interval of its
    rise over the base must not exceed this. Judged where attempts have gold."""
    largest_component_share: float = Field(default=0.9, ge=0, le=1)
    """Of what the winners earned that were learned from, the share that one part of a reward of several
    parts may have given. The outcome is asked for nothing: ``reward.gate``'s signal, else ``success``."""
    largest_duplicate_winners: float = Field(default=0.8, ge=0, le=1)
    """Share of the winners that may be near-duplicates of another one, at another task."""
    canaries: Literal["forbid", "ignore"] = "forbid"
    largest_safety_loss: float = Field(default=0.0, ge=0, le=1)
    """Share of the cases of ``safety`` in which the base is safe and the candidate may not be."""
    largest_refusal_shift: float = Field(default=0.1, ge=0, le=1)
    """By how much the share of harmless cases that are refused may change, up or down."""
    largest_length_shift: float = Field(default=0.5, ge=0)
    """By which share of the base's length its answers to ``safety`` may become longer or shorter."""
    largest_format_loss: float = Field(default=0.05, ge=0, le=1)
    """By how much the share of cases without a whole answer may rise."""
    minimum_agreement: float = Field(default=0.5, ge=0, le=1)
    """How often a reward model prefers the rewarded attempt of a held-out task. The lower end of its interval, which
    widens as that of the gain, must be above this."""


class RecipeSpec(StrictModel):
    """The ``spec`` of a recipe."""

    recipe: str = Field(examples=list(RECIPES))
    """A shipped recipe (sft, awr, dpo, kto, grpo_replay, grpo_live, reward_model) or a plugin's."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What this recipe alone knows; see the shipped YAML file of its name."""
    data: DataSettings = DataSettings()
    training: TrainingSettings = TrainingSettings()
    adapter: AdapterSettings | None = None
    """None: all weights are trained."""
    launch: LaunchSettings | None = None
    """None: training is one process."""
    evaluation: EvaluationSettings | None = None
    """None: the model is registered but can only be promoted with an override."""
    regression: EvaluationSettings | None = None
    """A suite of tasks that must stay solved, tried like ``evaluation``."""
    canaries: CanarySettings | None = None
    safety: SafetySettings | None = None
    """None: not measured. ``{}`` takes the shipped suite."""
    gate: GateSettings = GateSettings()

    @field_validator("recipe")
    @classmethod
    def _is_known(cls, value: str) -> str:
        known = (*RECIPES, *(plugin.name for plugin in plugins(PLUGINS)))
        if value not in known:
            raise ValueError(f"unknown recipe {value!r}; there are {', '.join(known)}")
        return value

    @property
    def rows_per_step(self) -> int:
        """Number of rows (or episodes) in one optimizer step, over all processes."""
        processes = 1 if self.launch is None else self.launch.processes
        return self.training.batch_size * self.training.accumulation * processes

    @property
    def gpus(self) -> int:
        """Number of GPUs per machine, if there are any: one for each process."""
        return 1 if self.launch is None else self.launch.processes // self.launch.machines


class Recipe(Document):
    """A document of kind ``Recipe``."""

    kind: Literal["Recipe"]
    spec: RecipeSpec


def load_recipe(path: Path) -> Recipe:
    """Read a recipe document; what it leaves out comes from the shipped file of its recipe.

    Raises:
        DocumentError: naming file, line and field.
    """
    source = read_document(path)
    value = source.value
    spec = value.get("spec") if isinstance(value, dict) else None
    name = spec.get("recipe") if isinstance(spec, dict) else None
    if name in RECIPES and isinstance(spec, dict):
        shipped = read_document(_SHIPPED / f"{name}.yaml").value
        value = {**value, "spec": merge(shipped["spec"], spec)}
    recipe = validate(Recipe, source, value)
    _check_options(recipe, source)
    return recipe


def _check_options(recipe: Recipe, source: SourceDocument) -> None:
    from train.recipes import recipe_module

    options = recipe_module(recipe.spec.recipe).options
    validate(options, source, recipe.spec.options, within=("spec", "options"))


def load_or_shipped(recipe: str) -> Recipe:
    """Return a recipe by the path of its document or by its shipped name.

    Raises:
        DocumentError: there is none, or it is wrong.
    """
    is_path = recipe.endswith((".yaml", ".yml"))
    return load_recipe(Path(recipe)) if is_path else shipped_recipe(recipe)


def shipped_recipe(name: str) -> Recipe:
    """Return a shipped recipe as it is.

    Raises:
        DocumentError: there is no recipe of this name.
    """
    if name not in RECIPES:
        raise DocumentError(f"unknown recipe {name!r}; there are {', '.join(RECIPES)}")
    return load_recipe(_SHIPPED / f"{name}.yaml")
