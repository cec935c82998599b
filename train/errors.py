"""Errors of training. The text of each names the remedy.

WorkError
├── EmptyRunError        nothing to learn from: says why every item fell away
├── SubstrateRefusedError a substrate does not meet the Quality policy: names each reason
├── StaleSubstrateError  a consent was withdrawn or data erased since the substrate was built
├── EvaluationError      the evaluator failed or answered something unreadable
├── TrainingError        the trainer failed (NaN, out of memory); names the last checkpoint
├── GateRefusedError     the model did not pass its gate, so it may not be promoted
└── ServingChangedError  somebody else changed what serves, or is on trial, a moment before
"""

from collections.abc import Sequence

from trajectory.errors import WorkError


class EmptyRunError(WorkError):
    """Nothing would be learned; the text counts why each item fell away."""


class StaleSubstrateError(WorkError):
    """Something in the substrate may no longer be learned from."""


class SubstrateRefusedError(WorkError):
    """A substrate does not meet the Quality policy; nothing of it was written."""

    exit_code = 1

    def __init__(self, name: str, reasons: Sequence[str]) -> None:
        """Say why substrate ``name`` is refused."""
        super().__init__(name, tuple(reasons))
        self.name = name
        self.reasons = tuple(reasons)

    def __str__(self) -> str:
        """Name each reason."""
        return (
            f"substrate {self.name} is refused by the Quality policy: {', '.join(self.reasons)}; "
            "nothing was written. Select otherwise, or mend the policy's `substrate` part."
        )


class EvaluationError(WorkError):
    """The evaluator failed, or its report cannot be read."""


class TrainingError(WorkError):
    """The trainer failed; the text names the cause and the last checkpoint."""


class GateRefusedError(WorkError):
    """A model that did not pass its gate was to be promoted."""

    exit_code = 1


class ServingChangedError(WorkError):
    """What serves or is on trial is not what whoever changes it has seen."""
