"""What a call that comes late takes away from later calls of its conversation that are stored already.

Judged in the order of time, they would have lost it with the call. Each gets a decision that says so; of the
decisions on a step the latest holds.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from governance.consent import CONVERSATION
from governance.passes.calls import Admission
from governance.policy.consent import Purpose
from governance.records import GovernanceRecord
from governance.stored_content import KnownContent
from trajectory.assembly.result import PlacedCall, PlacedCorrection


class TakenLate(NamedTuple):
    """What a conversation loses with a stored call."""

    tenant_id: str
    trajectory_id: str
    started_at: datetime
    """When the call was made; what came before it is left alone."""
    purposes: frozenset[Purpose]


class LateOptOuts:
    """What the calls of one batch take away from their conversations."""

    def __init__(
        self,
        judged: Iterable[tuple[PlacedCall, Admission]],
        corrections: Sequence[PlacedCorrection],
        policy_hash: str,
        now: datetime,
        told: Iterable[TakenLate] = (),
    ) -> None:
        """Take note of what calls took away.

        Args:
            judged: the calls with the verdict on each.
            corrections: what the batch changes about calls of earlier ones.
            policy_hash: the policy.
            now: the moment of decisions.
            told: what people took away to whom stored calls turned out to belong.
        """
        self._policy_hash = policy_hash
        self._now = now
        self._moved = {(one.tenant_id, one.step_id): one.trajectory_id for one in corrections}
        self._taken: dict[tuple[str, str], list[tuple[datetime, frozenset[Purpose]]]] = defaultdict(
            list
        )
        for placed, admission in judged:
            if taken := admission.consent.newly_withheld:
                exchange = placed.call.exchange
                place = (exchange.client.tenant_id, placed.trajectory_id)
                self._taken[place].append((exchange.started_at, taken))
        for tenant, trajectory, started_at, taken in told:
            self._taken[tenant, trajectory].append((started_at, taken))

    def obeyed(self, row: GovernanceRecord) -> GovernanceRecord:
        """Return a decision without what calls before the step took away; the same where that is nothing."""
        place = self._moved.get((row.tenant_id, row.step_id), row.trajectory_id)
        before = self._taken.get((row.tenant_id, place), ())
        lost = frozenset[Purpose]().union(*(some for at, some in before if at < row.started_at))
        if set(row.purposes).isdisjoint(lost):
            return row
        said = (CONVERSATION + purpose for purpose in Purpose if purpose in lost)
        return replace(
            row,
            decided_at=row.decided_again(self._now),
            policy_hash=self._policy_hash,
            purposes=tuple(one for one in row.purposes if one not in lost),
            reasons=tuple(dict.fromkeys([*row.reasons, *said])),
        )

    def on_stored(
        self, known: KnownContent, decided: Collection[tuple[str, str]]
    ) -> Iterator[GovernanceRecord]:
        """Yield new decisions on stored steps.

        Args:
            known: what the lake already holds.
            decided: tenants and steps that the batch decides about anyway.
        """
        asked: dict[str, set[str]] = defaultdict(set)
        for tenant, trajectory in self._taken:
            asked[tenant].add(trajectory)
        for tenant, trajectories in asked.items():
            joined = {
                step
                for (whose, step), place in self._moved.items()
                if whose == tenant and place in trajectories
            }
            rows = [*known.decisions_in(tenant, trajectories), *known.decisions(tenant, joined)]
            for row in {row.step_id: row for row in rows}.values():
                obeyed = self.obeyed(row)
                if obeyed is not row and (tenant, row.step_id) not in decided:
                    yield obeyed
