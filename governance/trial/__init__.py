"""Trying a policy: test cases kept beside it, and explanations of its decisions."""

from governance.trial.explain import Explanation, Verdict, explain_exchange, explain_step
from governance.trial.run import CaseResult, RedactorFactory, run_policy_tests

__all__ = [
    "CaseResult",
    "Explanation",
    "RedactorFactory",
    "Verdict",
    "explain_exchange",
    "explain_step",
    "run_policy_tests",
]
