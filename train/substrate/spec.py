"""The YAML document of kind ``Substrate``: what may be learned from, and how it is split and capped."""

from datetime import date
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from lakehouse.rewards import RewardWeights
from train.types import Item
from trajectory.documents.document import Document, StrictModel, load_document

type SplitKey = Literal["tenant", "session", "group", "trajectory"]
type Purpose = Literal["debug", "eval", "train_sft", "train_preference", "train_rl", "share"]


class RewardGate(StrictModel):
    """The outcome that decides whether what steps earned counts."""

    signal: str = Field(min_length=1)
    """Name of the outcome's signal, like ``success``; where nobody gave it, nothing passed."""
    at_least: float = 0.5
    """From which value on it passed."""


class RewardSpec(StrictModel):
    """Combines signals into one number per item."""

    signals: dict[str, float] = Field(min_length=1)
    """Signal name → weight; the reward is the weighted sum of their values."""
    minimum: float | None = None
    """An item whose reward is at least this counts as rewarded; None: above 0."""
    combine: Literal["last", "mean", "minimum", "sum"] = "last"
    """What several signals of one name on one trajectory become; last: the trajectory's own before
    its steps' before its session's, then the latest."""
    missing: Literal["leave_out", "zero"] = "leave_out"
    """What an absent signal means."""
    gate: RewardGate | None = None
    """Signals about steps count only where the outcome passed."""

    @property
    def weights(self) -> RewardWeights:
        """The weights, in the form in which the lake computes with them."""
        if self.gate is None:
            return RewardWeights(self.signals, self.combine, self.missing)
        gate = self.gate
        return RewardWeights(self.signals, self.combine, self.missing, gate.signal, gate.at_least)

    def is_rewarded(self, reward: float) -> bool:
        """Whether an item with this reward counts as a success."""
        return reward > 0 if self.minimum is None else reward >= self.minimum


class SplitSpec(StrictModel):
    """Which items are held out; the same key always falls on the same side."""

    by: tuple[SplitKey, ...] = Field(default=("tenant", "group"), min_length=1)
    holdout: float = Field(default=0.1, ge=0, lt=1)
    """Share of keys that is held out."""
    salt: str = "headrace"
    """Part of the hash; change it and other keys are held out."""
    holdout_from: date | None = None
    """Everything that started on this UTC day or later is held out too."""

    @field_validator("by", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    def side(self, item: Item) -> Literal["train", "holdout"]:
        """Return ``train`` or ``holdout``, from the item's own keys alone."""
        if self.holdout_from is not None and item.started_at.date() >= self.holdout_from:
            return "holdout"
        keys = {
            "tenant": item.tenant_id,
            "session": item.session_hint or item.trajectory_id,
            "group": item.group_id,
            "trajectory": item.trajectory_id,
        }
        text = "\x1f".join((self.salt, *(keys[name] for name in self.by)))
        draw = int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) / 2**64
        return "holdout" if draw < self.holdout else "train"


class CapSpec(StrictModel):
    """Most items that may come from one source, so that none drowns the others; None: no limit."""

    per_tenant: int | None = Field(default=None, ge=1)
    per_harness: int | None = Field(default=None, ge=1)
    per_group: int | None = Field(default=None, ge=1)
    total: int | None = Field(default=None, ge=1)


class RequireSpec(StrictModel):
    """Conditions that a step must meet to be selected."""

    capture_level: Literal["text", "logprobs", "tokens"] = "text"
    """``tokens``: exact ones, of prompt and answer; a prompt that redaction changed has none."""
    inferred_sessions: bool = True
    """False leaves out trajectories that were only inferred (``key_source`` prefix or none)."""


class NearSpec(StrictModel):
    """Which items say almost the same, and which of them stays."""

    threshold: float = Field(default=0.8, ge=0.5, le=1)
    """Least Jaccard similarity of shingles, of what was asked and of what was answered."""
    keep: Literal["rewarded", "latest", "earliest", "longest"] = "rewarded"
    """The representative that stays; equal ones: the earliest. Attempts at one task all stay."""


class EvaluationSpec(StrictModel):
    """Texts that a model is examined on, which training may not hold."""

    files: tuple[str, ...] = Field(min_length=1)
    """One text or JSON document per line; relative to the substrate's document."""
    words: int = Field(default=8, ge=3, le=50)
    """Length of the runs of words that are compared."""
    least: float = Field(default=0.5, gt=0, le=1)
    """Minimum n-gram overlap with an evaluation text at which an item is dropped as contaminated."""


class SubstrateSpec(StrictModel):
    """The ``spec`` of a substrate."""

    purposes: tuple[Purpose, ...] = Field(min_length=1)
    """Every one of these must be allowed for a step at the time of building and of training."""
    where: str = "true"
    """SQL condition over the columns of the view ``eligible_steps``."""
    reward: RewardSpec
    split: SplitSpec = SplitSpec()
    require: RequireSpec = RequireSpec()
    caps: CapSpec = CapSpec()
    duplicates: Literal["drop", "keep"] = "keep"
    """Items that would teach exactly the same; several attempts at a task may be that."""
    near_duplicates: NearSpec | None = None
    """Leave out items that say almost the same as a better one; None keeps them."""
    evaluation: EvaluationSpec | None = None
    """Leave out of training what holds pieces of these texts."""
    decontaminate: bool = True
    """Leave out of training what asks the same first question as something held out."""
    seed: int = 0
    """Decides which items the caps keep."""


class Substrate(Document):
    """A document of kind ``Substrate``."""

    kind: Literal["Substrate"]
    spec: SubstrateSpec


def load_substrate(path: Path) -> Substrate:
    """Read a substrate document.

    Raises:
        DocumentError: naming file, line and field.
    """
    return load_document(Substrate, path)
