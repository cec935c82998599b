"""Rules on tool calls, for gateways of tests and benchmarks."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.guard.approvals import Approvals
from proxy.guard.document import Action, rules_of
from proxy.guard.operators import OperatorTerms
from proxy.guard.route import GuardTerms, RouteRules
from trajectory.dialects.operations import operation

APPROVALS_KEY = b"a" * 32
CREDENTIAL = "hro_test"
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
            OperatorTerms(CREDENTIAL, self._audit),
            self._audit,
        )

    def _audit(self, *entry: Any) -> None:
        with self.path.with_suffix(".audit").open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def audited(self) -> list[Any]:
        """Return what operators did."""
        lines = self.path.with_suffix(".audit").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]
