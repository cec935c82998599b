"""Trying a policy's rules on tool calls: what becomes of the calls of a test case."""

from functools import cached_property

from governance.policy import PolicyBundle
from governance.trial.cases import CaseCall
from headrace.app.guard import read_actions
from proxy.guard.conditions import fits
from proxy.guard.document import Action, rules_of
from proxy.guard.rules import RequestedCall, Ruling


class ActionTrial:
    """Judges the tool calls of cases as the gateway would, on whichever kind of route they are."""

    def __init__(self, bundle: PolicyBundle) -> None:
        self._bundle = bundle

    @cached_property
    def _documents(self) -> list[Action]:
        return read_actions(self._bundle.path)

    def rulings(self, given: CaseCall) -> dict[str, str]:
        """Return what becomes of each tool's call: deny, hold, limit, dry-run or allow."""
        rules = rules_of(
            one
            for one in self._documents
            if any(
                fits(name, given.route)
                for name in (*one.spec.routes, *one.spec.answers, *one.spec.taps)
            )
        )
        found: dict[str, str] = {}
        for call in given.tool_calls:
            if rules is None:
                found[call.name] = Ruling.ALLOW.value
                continue
            judged = rules.judge(
                RequestedCall(
                    call.name,
                    call.arguments if call.arguments is not None else {},
                    tenant=given.tenant,
                    app=given.app,
                    environment=given.environment,
                )
            )
            is_watched = judged.ruling is Ruling.ALLOW and judged.watched
            found[call.name] = (Ruling.DRY_RUN if is_watched else judged.ruling).value
        return found
