"""Approvals: links from the step that asked a person to the step that got their answer; often it is the same.

Answers come as feedback of the guard, before or after their steps. They are remembered as long as their
steps are, so that a correction names their links again.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.assembly.graph import StateIndex
from trajectory.assembly.result import PlacedLink
from trajectory.exchange import ASKED_BY, Feedback

APPROVAL = "approval"
"""Kind of such a link."""
_KEY_SOURCE = "guard"


class ApprovalLinks:
    """The approvals that an assembler remembers, by the step that each belongs to."""

    def __init__(self, index: StateIndex, maker: Fingerprinter) -> None:
        self._index = index
        self._make = maker

    def take(self, feedback: Sequence[Feedback]) -> tuple[str, ...]:
        """Remember the answers in feedback; return the steps of those that are new."""
        found: dict[str, None] = {}
        for item in sorted(feedback, key=lambda one: (one.received_at, one.feedback_id)):
            asked_by = item.body.get(ASKED_BY)
            if item.target_kind != "step" or not isinstance(asked_by, str):
                continue
            tenant = self._make.short("tenant", item.client.tenant_id)
            step_id = self._make.identifier("step", item.target_id)
            known = self._index.state.approvals.setdefault(step_id, [])
            start = self._make.identifier("step", asked_by)
            if all((start, tenant) != (other, whose) for other, whose, _ in known):
                known.append((start, tenant, item.received_at.timestamp()))
                found[step_id] = None
        return tuple(found)

    def links(self, step_id: str, tenants: Mapping[str, str]) -> Iterable[PlacedLink]:
        """Yield the links to a step, where assembly knows where it belongs."""
        fact = self._index.by_step.get(step_id)
        if fact is None or fact.placement is None:
            return
        for start, tenant, at in self._index.state.approvals.get(step_id, ()):
            if tenant == fact.tenant:
                yield PlacedLink(
                    tenant_id=tenants[tenant],
                    kind=APPROVAL,
                    from_step_id=start,
                    to_step_id=step_id,
                    trajectory_id=fact.placement.trajectory_id,
                    recorded_at=datetime.fromtimestamp(at, UTC),
                    key_source=_KEY_SOURCE,
                )

    def forget(self) -> None:
        """Forget the approvals of forgotten steps, and those whose step never came."""
        state = self._index.state
        oldest = state.clock - state.idle_seconds
        for step_id, known in [*state.approvals.items()]:
            if step_id not in self._index.by_step and all(at < oldest for _, _, at in known):
                del state.approvals[step_id]
