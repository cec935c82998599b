"""The quality gate: what a step must fulfil before it is stored, as a named suite."""

from governance.quality.facts import StepFacts
from governance.quality.gate import QualityGate, RowGate, build_gate, gate_of

__all__ = ["QualityGate", "RowGate", "StepFacts", "build_gate", "gate_of"]
