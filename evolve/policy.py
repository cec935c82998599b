"""The document of kind ``Evolution``: what is watched, what counts as proof, and who is to blame for what."""

from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from train.recipes.settings import (
    EvaluationSettings,
    GateSettings,
    ReplaySettings,
    SafetySettings,
)
from trajectory.canonical import JsonObject, content_hash
from trajectory.documents.document import NAME_PATTERN, Document, StrictModel, load_document

SignalName = Literal[
    "success", "correction_rate", "tool_errors", "cost_per_success", "retries", "abandonment",
    "invalid_arguments", "mix",
]  # fmt: skip
Surface = Literal["memory", "skill", "harness", "tool_schema", "weights", "rollback", "nothing"]
Dimension = Literal[
    "tool", "error_class", "argument_path", "procedure", "harness_version", "model_version",
    "workload", "tenant", "message",
]  # fmt: skip
Rung = Literal["replay", "gate", "shadow", "canary", "live"]
TrialGuard = Literal["latency", "cost", "tool_errors", "format", "refusals", "unjudged"]
GuardName = Literal["evaluator", "gold", "eligible", "on_trial", "cooldown"]

Share = Annotated[float, Field(ge=0, le=1)]
Nights = Annotated[int, Field(ge=1, le=366)]

SHIPPED = Path(__file__).parent.parent / "policies" / "evolution.yaml"
"""The policy that holds where nobody names one."""


class EvolutionTarget(StrictModel):
    """Whose sessions are looked at; all when nothing is named."""

    tenants: tuple[str, ...] = ()
    apps: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()


class EvidenceWindow(StrictModel):
    """Nights that are looked at, the last one ending where the plan is made."""

    reference_nights: Nights = 28
    """Nights that tell what is usual."""
    case_nights: Nights = 14
    """Nights in which a change may have begun."""

    @property
    def nights(self) -> int:
        """All nights."""
        return self.reference_nights + self.case_nights


class FalseAlarms(StrictModel):
    """How often all detectors together may take a quiet time for a change."""

    at_most: float = Field(default=0.02, gt=0, lt=1)
    """Expected number of false alarms."""
    per_nights: Nights = 60


class MixDrift(StrictModel):
    """When the work itself is called another one: nights drawn anew tell how much it varies."""

    recent_nights: Nights = 3
    resamples: int = Field(default=199, ge=19, le=9999)
    risk: float = Field(default=0.005, gt=0, lt=1)


class ClusterTests(StrictModel):
    """Which clusters of failures count."""

    false_discoveries: float = Field(default=0.01, gt=0, lt=1)
    """Share of false ones among those found, by Benjamini and Hochberg."""
    minimum_events: int = Field(default=5, ge=1)
    minimum_share: Share = 0.4
    """Part of the rise that a cluster must account for to be its cause."""
    new_within_nights: Nights = 3
    """A version that began at most so long before the case is new."""


class Detectors(StrictModel):
    """What opens a case and what confirms it."""

    shift: float = Field(default=0.05, gt=0, lt=0.5)
    """Change of a share of sessions that is worth a case, such as 0.05 for five points."""
    opens_at: float = Field(default=4.0, gt=0)
    """Height of the CUSUM, in nats, at which a case is opened."""
    false_alarms: FalseAlarms = FalseAlarms()
    drift: MixDrift = MixDrift()
    clusters: ClusterTests = ClusterTests()


class Guards(StrictModel):
    """What forbids any change, whatever the detectors say."""

    minimum_sessions: int = Field(default=100, ge=1)
    """Sessions since the change began; fewer say too little."""
    evaluator_share: Share = 0.1
    """Share of the judgements by an evaluator that nobody knew before."""
    gold_risk: float = Field(default=0.01, gt=0, lt=1)
    """Risk with which a new disagreement with gold signals is taken for one."""


class Condition(StrictModel):
    """What must hold for a rule; what is left out holds always."""

    signals: tuple[SignalName, ...] = ()
    """The confirmed signal is one of these."""
    dimension: Dimension | None = None
    """Some cluster has this dimension; the strongest is the subject."""
    is_new: bool | None = None
    """The cluster's version is new."""
    error_classes: tuple[str, ...] = ()
    """The cluster's errors are of these classes."""
    tenants_at_least: int | None = Field(default=None, ge=1)
    """Tenants with failures of the cluster; of the whole case where no dimension is named."""
    tools_at_least: int | None = Field(default=None, ge=1)
    """Tools whose sessions fail more; only where no dimension is named."""
    no_cluster: bool = False
    """No cluster accounts for the rise."""
    mix_drifted: bool | None = None
    """The mix of work moved, or did not."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.no_cluster and self.dimension is not None:
            raise ValueError("no_cluster and dimension exclude each other")
        if self.dimension is None and (self.is_new is not None or self.error_classes):
            raise ValueError("is_new and error_classes are about a cluster: name its dimension")
        if self.is_new is not None and self.dimension not in ("harness_version", "model_version"):
            raise ValueError("is_new is about harness_version and model_version")
        if self.error_classes and self.dimension not in ("error_class", "argument_path", "message"):
            raise ValueError("error_classes is about error_class, argument_path and message")
        if self.tools_at_least is not None and self.dimension is not None:
            raise ValueError("tools_at_least is about the whole case: name no dimension")
        return self


class SurfaceRule(StrictModel):
    """One line of the table that maps failures to what should change."""

    name: str = Field(min_length=1, max_length=120)
    when: Condition
    surface: Surface


class TrafficSlice(StrictModel):
    """Sessions that are looked at apart; what is named must all fit."""

    tenant: str | None = None
    app: str | None = None
    environment: str | None = None

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise ValueError("a slice names at least one of: tenant, app, environment")
        return self

    @property
    def label(self) -> str:
        """What it names, in one line."""
        return " ".join(
            f"{key}={value}" for key, value in self.model_dump(exclude_none=True).items()
        )


class Exam(StrictModel):
    """What a candidate must show before it is put on the ladder's first rung."""

    model: str | None = Field(default=None, pattern=NAME_PATTERN)
    """Name in the registry of models whose live version is given an artefact. A model candidate is
    compared with the version that serves."""
    substrate: str | None = None
    """Of its newest version the held-out tasks are tried in the replayed tool environment, without an
    artefact and with it. None: only ``safety`` is asked. Models are evaluated when they are trained."""
    evaluation: EvaluationSettings = EvaluationSettings(replay=ReplaySettings())
    safety: SafetySettings | None = None
    """None: not asked. ``{}`` takes the shipped suite."""
    gate: GateSettings = GateSettings()

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.substrate is None and self.safety is None:
            raise ValueError("an exam asks something: give substrate, safety, or both")
        if self.substrate is not None and self.model is None:
            raise ValueError("substrate asks for model: who answers the tasks")
        if self.evaluation.replay is None:
            raise ValueError(
                "an exam's evaluation is tried by replay: no program can be given artefacts"
            )
        return self


class Ladder(StrictModel):
    """How a candidate climbs from its gate to every session, and what stops it."""

    rungs: tuple[Rung, ...] = ("replay", "gate", "shadow", "canary", "live")
    """In this order; ``gate``, ``canary`` and ``live`` belong to every ladder."""
    exam: Exam | None = None
    """What a candidate must show first; None: what its gate or its inspection found is enough."""
    ask: tuple[Rung, ...] = ()
    """Rungs that a person must approve first (``headrace trial approve``)."""
    canary: float = Field(default=0.5, gt=0, le=0.5)
    """Share of the sessions that the candidate gets on its canary; the others are its control."""
    shadow_calls: int = Field(default=100, ge=1)
    """Copied calls that a shadow must have answered before it climbs on."""
    margin: float = Field(default=0.05, gt=0, lt=0.5)
    """By how much success may be worse and still count as no worse, such as 0.05 for five points."""
    slices: tuple[TrafficSlice, ...] = ()
    """In each of them success must be no worse either."""
    slice_margin: float = Field(default=0.15, gt=0, lt=0.5)
    guards: tuple[TrialGuard, ...] = (
        "latency", "cost", "tool_errors", "format", "refusals", "unjudged",
    )  # fmt: skip
    """What else must not get worse, in shares of sessions; ``unjudged`` are those without an outcome."""
    guard_margin: float = Field(default=0.1, gt=0, lt=0.5)
    false_rollbacks: float = Field(default=0.05, gt=0, lt=1)
    """Chance at most, on each of shadow, canary and live, that one is rolled back that is worse in nothing."""
    false_promotions: float = Field(default=0.05, gt=0, lt=1)
    """Chance at most that a candidate goes live that is worse by more than a margin."""
    settle_minutes: float = Field(default=10.0, ge=0, le=7 * 24 * 60)
    """So long must a session be silent; then it counts, with the outcome that is known by then."""
    max_days: Nights = 14
    """A canary that has shown nothing by then ends; what was live stays. Between two looks at most a day counts."""
    watch_days: Nights = 7
    """Days after it went live in which a confirmed drop rolls it back."""

    @model_validator(mode="after")
    def _is_a_ladder(self) -> Self:
        order = [one for one in get_args(Rung) if one in self.rungs]
        if list(self.rungs) != order:
            raise ValueError(f"rungs go in this order, each once: {', '.join(get_args(Rung))}")
        if missing := {"gate", "canary", "live"} - {*self.rungs}:
            raise ValueError(
                f"rungs lacks {', '.join(sorted(missing))}: no candidate goes round it"
            )
        if strange := [one for one in self.ask if one not in self.rungs]:
            raise ValueError(f"ask names {', '.join(strange)}, which is no rung of this ladder")
        labels = [one.label for one in self.slices]
        if len({*labels}) < len(labels):
            raise ValueError("slices names one twice")
        return self


class Promotion(StrictModel):
    """What is expected of a change, and by when; and how it gets there."""

    recovers: Share = 0.5
    """Part of what was lost that the change must bring back."""
    within_nights: Nights = 7
    ladder: Ladder = Ladder()


class Cooldown(StrictModel):
    """How long nothing else is proposed."""

    nights: int = Field(default=7, ge=0, le=366)
    """After a proposal, whatever became of it. A rollback does not wait."""


class EvolutionSpec(StrictModel):
    """The ``spec`` of an evolution policy."""

    target: EvolutionTarget = EvolutionTarget()
    window: EvidenceWindow = EvidenceWindow()
    signals: tuple[SignalName, ...] = Field(min_length=1)
    """In order of weight: the first that is confirmed is explained."""
    detectors: Detectors = Detectors()
    guards: Guards = Guards()
    rules: tuple[SurfaceRule, ...] = ()
    """The first that holds decides; where none holds, nothing changes."""
    promotion: Promotion = Promotion()
    cooldown: Cooldown = Cooldown()

    @model_validator(mode="after")
    def _names_once(self) -> Self:
        if len(set(self.signals)) < len(self.signals):
            raise ValueError("signals names one twice")
        names = [rule.name for rule in self.rules]
        if len(set(names)) < len(names):
            raise ValueError("rules have the same name twice; a decision names its rule")
        return self


class Evolution(Document):
    """A document of kind ``Evolution``."""

    kind: Literal["Evolution"]
    spec: EvolutionSpec

    @property
    def deciding(self) -> JsonObject:
        """What decisions rest on; how a candidate climbs afterwards is none of it."""
        return self.model_dump(mode="json", exclude={"spec": {"promotion": {"ladder"}}})

    @property
    def content_hash(self) -> str:
        """Hash of what decides; comments, layout and the ladder do not count."""
        return content_hash(self.deciding)


def load_evolution(path: Path = SHIPPED) -> Evolution:
    """Read a policy.

    Raises:
        DocumentError: naming file, line and field.
    """
    return load_document(Evolution, path)
