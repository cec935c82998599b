"""The values that training works with, on one page.

Shapes: ``P`` tokens of a prompt, ``C`` of a completion, ``S`` steps, ``M`` messages. What is named in
the plural holds one entry for each. A reward is ``lakehouse.rewards.Reward``, a number per item; an
attempt at a held-out task in tools that answer is ``train.evaluation.examine.Episode`` (a rollout);
rows for a trainer are ``train.runs.rows.TrainingRow``, with ``P + C`` tokens and as many labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from train.chat import ChatMessage


@dataclass(frozen=True, slots=True)
class Item:
    """One conversation to learn from."""

    item_id: str
    """Hash of tenant, last step, messages and trained places."""
    content_id: str
    """Hash without step and system prompts: two items that would teach the same have the same one."""
    tenant_id: str
    trajectory_id: str
    group_id: str
    """Task or group that several attempts share; the trajectory itself when it has none."""
    session_hint: str | None
    harness_id: str | None
    started_at: datetime
    key_source: str
    capture_level: str
    model_served: str | None
    step_ids: tuple[str, ...]
    """The steps whose outputs are learned, in order."""
    message_ids: tuple[str, ...]
    """The conversation, from its first message to the last output."""
    trained: tuple[int, ...]
    """Indexes in ``message_ids`` of the outputs of ``step_ids``."""
    leading: int = 0
    """How many messages the conversation begins with that are system prompts."""
    tools_id: str | None = None
    """Hash of the tools that its first step was given."""
    frames: tuple[tuple[str, ...], ...] = ()
    """What stood around each of ``step_ids``, where it was not the same for all: the id of its harness
    (empty for none) and those of its system prompts. A prompt may name the time, tools may change."""
    context_step_ids: tuple[str, ...] = ()
    """Steps that the conversation goes on from and that are not learned here."""
    first_said: int = 0
    """Index in ``message_ids`` of the first message that the agent said, whether or not it is learned here."""

    @property
    def task(self) -> tuple[str, ...]:
        """Identity of a task, shared by all attempts: the request and the tools."""
        return (self.tenant_id, self.tools_id or "", *self.beginning)

    @property
    def beginning(self) -> tuple[str, ...]:
        """The request: messages before the agent's first answer, without system prompts."""
        return self.message_ids[self.leading : self.trained[0]]


@dataclass(frozen=True, slots=True)
class ScoredItem:
    """An item of a substrate: what to learn from, on which side of the split, how good it was."""

    item: Item
    split: Literal["train", "holdout"]
    reward: float
    rewarded: bool
    """Whether the reward reaches the substrate's minimum."""
    signals: str
    """JSON object name → value."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation that a model is to go on with."""

    messages: Sequence[ChatMessage] = field(repr=False)
    tools: Sequence[dict[str, Any]] = field(repr=False)
    seed: str
    """Decides what is drawn, whatever else is answered beside it."""


@dataclass(frozen=True, slots=True)
class Completion:
    """Output of a model."""

    message: ChatMessage = field(repr=False)
    whole: bool
    """Whether it ended its turn itself."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters of a sequence."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """How many of the likeliest tokens one is drawn of; all of them where it is not above 0."""
    max_tokens: int | None = None
    """None: as many as the context has room for."""
    seed: int | None = None
    top_logprobs: int = 0


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token."""

    id: int
    logprob: float
    """Natural log of its probability before temperature and top-p."""
    top: tuple[tuple[int, float], ...] = ()
    last: str | None = None
    """Why generation ended with this token: ``stop`` (end of turn) or ``length``."""
