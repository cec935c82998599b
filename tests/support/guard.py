"""Rules on tool calls, for gateways of tests and benchmarks."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.guard.approvals import Approvals
from proxy.guard.document import Action, rules_of
from proxy.guard.route import GuardTerms, RouteRules
from trajectory.dialects.operations import operation

APPROVALS_KEY = b"a" * 32
POLICY_HASH = "b2:test"


@dataclass(frozen=True)
class GuardSetup:
    """Travels to the gateway's process, which makes its rules of it."""

    path: Path
    """Of the approvals."""
    spec: Mapping[str, Any]
    """Of a document of kind Action."""
    routes: tuple[str, ...] = ("tools",)
    operations: tuple[tuple[str, str, str], ...] | None = None
    """Name, method and path of what plain HTTP tools can do."""
    answers: tuple[str, ...] = ()
    """Routes whose models' answers are judged."""

    def approvals(self) -> Approvals:
        """Return the file that the gateway writes."""
        return Approvals(self.path, APPROVALS_KEY)

    def __call__(self) -> GuardTerms:
        """Return the rules."""
        document = Action.model_validate(
            {
                "apiVersion": "headrace/v1",
                "kind": "Action",
                "metadata": {"name": "test"},
                "spec": {"routes": "*", **self.spec},
            }
        )
        rules = rules_of([document])
        assert rules is not None
        found = None
        if self.operations is not None:
            found = tuple(operation(*one) for one in self.operations)
        return GuardTerms(
            dict.fromkeys(self.routes, RouteRules(rules, found)),
            self.approvals(),
            POLICY_HASH,
            dict.fromkeys(self.answers, rules),
        )
