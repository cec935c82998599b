"""Evidence by hand: windows of nights in which one thing goes wrong, for tests of decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from evolve.clusters import Grouped
from evolve.detectors import Counted, DetectorState, Series
from evolve.plan import Evidence
from evolve.policy import Evolution

AS_OF = datetime(2026, 11, 20, tzinfo=UTC)
NIGHTS = 42
QUIET = (Counted(200, 20),) * NIGHTS
"""One session in ten goes wrong."""
WORSE = (*QUIET[:38], *(Counted(200, 60),) * 4)
"""Three in ten since four nights."""

RULES = [
    {"name": "canary", "when": {"dimension": "model_version", "is_new": True}, "surface": "rollback"},
    {"name": "prompt", "when": {"dimension": "harness_version", "is_new": True}, "surface": "rollback"},
    {
        "name": "arguments", "surface": "tool_schema",
        "when": {"dimension": "error_class", "error_classes": ["invalid_arguments"]},
    },
    {"name": "fact", "when": {"dimension": "tenant"}, "surface": "memory"},
    {"name": "order", "when": {"dimension": "procedure", "tenants_at_least": 2}, "surface": "skill"},
    {"name": "cost", "when": {"signals": ["cost_per_success"]}, "surface": "harness"},
    {
        "name": "everywhere", "surface": "weights",
        "when": {"no_cluster": True, "tenants_at_least": 3, "tools_at_least": 2, "mix_drifted": False},
    },
]  # fmt: skip


def policy(**spec: object) -> Evolution:
    """Return a policy; what is named replaces what this one says."""
    said = {"signals": ["success", "cost_per_success", "mix"], "rules": RULES, **spec}
    return Evolution.model_validate(
        {"apiVersion": "headrace/v1", "kind": "Evolution", "metadata": {"name": "t"}, "spec": said}
    )


def evidence(nights: Sequence[Counted] = WORSE, **changes: object) -> Evidence:
    """Return a window whose signal of success went like this."""
    first = date(2026, 11, 20) - timedelta(days=NIGHTS)
    made = Evidence(
        days=tuple(first + timedelta(days=at) for at in range(NIGHTS)),
        series=(Series("success", "", tuple(nights)),),
        levels={},
        mix={"shop acme": (100,) * NIGHTS, "shop other": (100,) * NIGHTS},
        evaluators={"success": {"verifier unit": (200,) * NIGHTS}},
        gold=(Counted(0, 0),) * NIGHTS,
        on_trial=(),
        earlier=(),
        versions={"steps": 3},
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def group(dimension: str, value: str, since: tuple[int, int], **changes: object) -> Grouped:
    """Return what shares a value: a quarter of the sessions before, one in ten of them wrong."""
    given: dict[str, object] = {
        "before": Counted(1900, 190), "since": Counted(*since), "tenants": 3, "first_night": 0,
    }  # fmt: skip
    return Grouped(dimension, value, **{**given, **changes})  # type: ignore[arg-type]


SPREAD = tuple(
    group(dimension, f"{dimension} {at}", (200, 60), tenants=1 if dimension == "tenant" else 4)
    for dimension in ("tenant", "tool")
    for at in range(4)
)
"""Four tenants and four tools, all equally worse."""


@dataclass(frozen=True, slots=True)
class FixedLookup:
    """Answers what a test says."""

    found: Sequence[Grouped] = SPREAD
    usable: int = 10_000

    def groups(self, case: DetectorState) -> Sequence[Grouped]:
        """See :class:`evolve.plan.Lookup`."""
        return self.found

    def examples(self, case: DetectorState, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """See :class:`evolve.plan.Lookup`."""
        return dict.fromkeys(names, ("t1", "t2"))

    def eligible(self) -> int:
        """See :class:`evolve.plan.Lookup`."""
        return self.usable
