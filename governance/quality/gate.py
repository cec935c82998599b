"""The gate over a batch: which steps fail which expectation."""

from collections.abc import Sequence
from typing import Protocol

from governance.policy.quality import QualitySpec
from governance.quality.facts import StepFacts
from governance.quality.rows import failing_rows

type Failures = dict[str, tuple[str, ...]]
"""step_id → names of the expectations that it does not meet."""


class QualityGate(Protocol):
    """Decides which steps of a batch may be stored."""

    def failures(self, rows: Sequence[StepFacts]) -> Failures:
        """Return the steps that may not be stored; raises when it cannot tell."""
        ...


class RowGate:
    """Checks the expectations in plain Python: no import of seconds, same verdicts."""

    def __init__(self, spec: QualitySpec) -> None:
        """Check what ``spec`` expects."""
        self._expectations = spec.expectations

    def failures(self, rows: Sequence[StepFacts]) -> Failures:
        """See :class:`QualityGate`."""
        found: dict[str, list[str]] = {}
        for expectation in self._expectations:
            for step_id in failing_rows(expectation, rows):
                found.setdefault(step_id, []).append(expectation.name)
        return {step_id: tuple(dict.fromkeys(names)) for step_id, names in found.items()}


def build_gate(spec: QualitySpec) -> QualityGate:
    """Return the gate that the policy asks for; importing Great Expectations takes seconds."""
    if spec.gate == "rows":
        return RowGate(spec)
    from governance.quality.great_expectations import GreatExpectationsGate

    return GreatExpectationsGate(spec)
