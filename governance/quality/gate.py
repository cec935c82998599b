"""The gate over a batch: which steps fail which expectation, and which tenants' steps drift."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Protocol

from governance.errors import FieldError
from governance.policy.documents import PolicyBundle
from governance.policy.quality import Column, QualitySpec
from governance.quality.drift import FEWEST, STEP_NUMBERS, drift, drifted
from governance.quality.facts import StepFacts
from governance.quality.suite import Failures, Suite

type Reference = Callable[[str, int], Sequence[StepFacts]]
"""Returns a tenant's stored steps of the days before now, at most so many days."""


class QualityGate(Protocol):
    """Decides which steps of a batch may be stored."""

    def failures(self, rows: Sequence[StepFacts]) -> Failures:
        """Return the steps that may not be stored; raises when it cannot tell."""
        ...


class RowGate(Suite[Column]):
    """The expectations of a policy about steps."""

    def __init__(self, spec: QualitySpec) -> None:
        """Check what ``spec`` expects."""
        super().__init__(spec.expectations)


class DriftGate:
    """Holds all steps of a tenant that lie too far from those of its reference window."""

    def __init__(self, inner: QualityGate, spec: QualitySpec, reference: Reference) -> None:
        """Ask ``inner`` first; what it lets through is compared with ``reference``."""
        self._inner = inner
        self._spec = spec
        self._reference = reference

    def failures(self, rows: Sequence[StepFacts]) -> Failures:
        """See :class:`QualityGate`."""
        held = dict(self._inner.failures(rows))
        tenants: dict[str, list[StepFacts]] = defaultdict(list)
        for row in rows:
            if row.step_id not in held:
                tenants[row.tenant_id].append(row)
        for tenant, steps in tenants.items():
            if names := self._drifted(tenant, steps):
                held |= {row.step_id: names for row in steps}
        return held

    def _drifted(self, tenant: str, steps: Sequence[StepFacts]) -> tuple[str, ...]:
        policy = self._spec.drift
        if policy is None or len(steps) < FEWEST:
            return ()
        reference = self._reference(tenant, policy.reference_days)
        found = drift(steps, reference, policy.columns, numbers=STEP_NUMBERS)
        return tuple(f"drift:{name}" for name in drifted(found, policy.most))


def build_gate(spec: QualitySpec, *, reference: Reference | None = None) -> QualityGate:
    """Return the gate that the policy asks for.

    Args:
        spec: the policy.
        reference: what a batch's drift is measured against; without one, drift is not judged.
    """
    inner = RowGate(spec)
    if spec.drift is None or reference is None:
        return inner
    return DriftGate(inner, spec, reference)


def gate_of(bundle: PolicyBundle, *, reference: Reference | None = None) -> QualityGate:
    """Return the gate that a bundle asks for, tried on a step that nobody made.

    What it cannot evaluate shows here, and not at some batch; see :func:`build_gate`.

    Raises:
        PolicyError: it cannot be built or run; the text names file, line and field.
    """
    gate = build_gate(bundle.quality.spec, reference=reference)
    try:
        gate.failures([_TRIED])
    except Exception as error:
        why = f"the gate cannot be run: {type(error).__name__}"
        problem = FieldError(why, ("spec", "expectations"))
        raise bundle.located("Quality", problem) from error
    return gate


_TRIED = StepFacts(
    step_id="tried",
    tenant_id="tried",
    kind="model",
    role_in_graph="agent",
    dialect="openai.chat",
    key_source="none",
    outcome="complete",
    http_status=200,
    step_index=0,
    finished=1,
    context_messages=1,
    output_parts=1,
    output_characters=1,
    tool_calls=0,
    invalid_tool_arguments=0,
    unanswered_tool_results=0,
    leftover_findings=0,
    missing_messages=0,
    parent_missing=0,
    completion_tokens=1,
    logprobs=1,
    highest_logprob=-1.0,
    token_code="",
    latency_ms=1.0,
    time_reversed=0,
)

__all__ = ["DriftGate", "QualityGate", "Reference", "RowGate", "build_gate", "gate_of"]
