"""Trying a policy: test cases kept beside it, and explanations of its decisions."""

from governance.trial.explain import ExplainedReason, Explanation, explain_exchange, explain_step
from governance.trial.run import CaseResult, RedactorFactory, run_policy_tests

__all__ = [
    "CaseResult",
    "ExplainedReason",
    "Explanation",
    "RedactorFactory",
    "explain_exchange",
    "explain_step",
    "run_policy_tests",
]
