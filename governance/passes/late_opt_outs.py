"""What a call that comes late takes away from later calls of its conversation that are stored already.

Judged in the order of time, they would have lost it with the call. So would sessions that stand on the conversation.
Each gets a decision that says so; of the decisions on a step the latest holds.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from governance.consent import CONVERSATION, withheld_in
from governance.passes.calls import Admission
from governance.policy.consent import Purpose
from governance.records import GovernanceRecord, counted_from
from governance.stored_content import KnownContent
from trajectory.assembly.placer import STANDS_ON
from trajectory.assembly.result import PlacedCall, PlacedCorrection

type _Place = tuple[str, str]
"""A tenant and one of its trajectories."""


class TakenLate(NamedTuple):
    """What a conversation loses with a stored call."""

    tenant_id: str
    trajectory_id: str
    started_at: datetime
    """Since when the call counts; what came before it is left alone."""
    purposes: frozenset[Purpose]


class _HandedOn(NamedTuple):
    """A call that took over another session's history, or that its agent started."""

    source: _Place
    place: _Place
    """Its own."""
    started_at: datetime
    obeys: frozenset[Purpose] = frozenset()
    """What it does without already, and with it what comes after it there."""


class LateOptOuts:
    """What the calls of one batch take away from their conversations, and from sessions that stand on these."""

    def __init__(
        self,
        known: KnownContent,
        judged: Sequence[tuple[PlacedCall, Admission]],
        corrections: Sequence[PlacedCorrection],
        policy_hash: str,
        now: datetime,
        told: Iterable[TakenLate] = (),
    ) -> None:
        """Take note of what calls took away.

        Args:
            known: what the lake already holds.
            judged: the calls with the verdict on each.
            corrections: what the batch changes about calls of earlier ones.
            policy_hash: the policy.
            now: the moment of decisions.
            told: what people took away to whom stored calls turned out to belong.
        """
        self._known = known
        self._policy_hash = policy_hash
        self._now = now
        self._moved = {(one.tenant_id, one.step_id): one.trajectory_id for one in corrections}
        self._rows: dict[tuple[str, str], GovernanceRecord] = {}
        """The decisions on stored steps of conversations that lost something, by tenant and step."""
        self._taken: dict[_Place, list[tuple[datetime, frozenset[Purpose]]]] = defaultdict(list)
        for placed, admission in judged:
            if taken := admission.consent.newly_withheld:
                began = counted_from(placed.call.exchange.started_at, now)
                self._taken[_own(placed)].append((began, taken))
        for tenant, trajectory, started_at, taken in told:
            self._taken[tenant, trajectory].append((started_at, taken))
        corrected = self._corrected(judged, corrections)
        sources = {
            source
            for placed, admission in judged
            if admission.consent.withheld and (source := _source(placed)) is not None
        }
        self._take_from_stored(sources.union(one.source for one in corrected))
        fresh = (
            _HandedOn(source, _own(placed), placed.call.exchange.started_at)
            for placed, _ in judged
            if (source := _source(placed)) is not None
        )
        self._hand_on([*fresh, *corrected])

    def obeyed(self, row: GovernanceRecord) -> GovernanceRecord:
        """Return a decision without what calls before the step took away; the same where that is nothing."""
        lost = self._lost(self._place(row), row.started_at)
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

    def on_stored(self, decided: Collection[tuple[str, str]]) -> Iterator[GovernanceRecord]:
        """Yield new decisions on stored steps, but for tenants and steps that the batch decides about anyway."""
        for key, row in self._rows.items():
            obeyed = self.obeyed(row)
            if obeyed is not row and key not in decided:
                yield obeyed

    def _place(self, row: GovernanceRecord) -> _Place:
        return row.tenant_id, self._moved.get((row.tenant_id, row.step_id), row.trajectory_id)

    def _lost(self, place: _Place, moment: datetime) -> frozenset[Purpose]:
        """Return what a conversation has lost by a moment."""
        before = (taken for at, taken in self._taken.get(place, ()) if at <= moment)
        return frozenset[Purpose]().union(*before)

    def _corrected(
        self,
        judged: Iterable[tuple[PlacedCall, Admission]],
        corrections: Iterable[PlacedCorrection],
    ) -> list[_HandedOn]:
        """Return which stored calls turn out to stand on another session."""
        links = [
            (one, link.from_step_id)
            for one in corrections
            for link in one.links
            if link.kind in STANDS_ON
        ]
        places = {(_own(one)[0], one.step_id): _own(one) for one, _ in judged}
        places |= {key: (key[0], trajectory) for key, trajectory in self._moved.items()}
        unknown = {(one.tenant_id, step) for one, step in links} - places.keys()
        for tenant, steps in _by_tenant(unknown).items():
            for row in self._known.decisions(tenant, steps):
                places[tenant, row.step_id] = self._place(row)
        return [
            _HandedOn(source, (one.tenant_id, one.trajectory_id), one.started_at)
            for one, step in links
            if (source := places.get((one.tenant_id, step))) is not None
        ]

    def _take_from_stored(self, places: Collection[_Place]) -> None:
        """Take note of what stored calls took away, for those that turn out to come after them."""
        for tenant, trajectories in _by_tenant(places).items():
            for row in self._read(tenant, trajectories):
                if self._place(row) in places and (lost := withheld_in(row.reasons)):
                    self._taken[self._place(row)].append((row.counts_from, lost))

    def _hand_on(self, fresh: Sequence[_HandedOn]) -> None:
        """Let sessions lose what the conversations that they stand on lost before them."""
        rest = {*self._taken}
        while rest:
            stored = [*self._handed_on(rest)]
            reached: set[_Place] = set()
            for one in (*(one for one in fresh if one.source in rest), *stored):
                lost = self._lost(one.source, one.started_at)
                if not lost <= self._lost(one.place, one.started_at) | one.obeys:
                    began = counted_from(one.started_at, self._now)
                    self._taken[one.place].append((began, lost))
                    reached.add(one.place)
            rest = reached

    def _handed_on(self, places: Iterable[_Place]) -> Iterator[_HandedOn]:
        """Yield the stored calls that stand on these conversations."""
        for tenant, trajectories in _by_tenant(places).items():
            steps = {row.step_id: self._place(row) for row in self._read(tenant, trajectories)}
            standing = self._known.standing_on(tenant, steps)
            # A corrected step stands on what its correction says.
            others = {
                step
                for some in standing.values()
                for step in some
                if (tenant, step) not in self._moved
            }
            rows = {row.step_id: row for row in self._known.decisions(tenant, others)}
            for step, some in standing.items():
                for row in (rows[other] for other in sorted(some & rows.keys())):
                    obeys = withheld_in(row.reasons)
                    yield _HandedOn(steps[step], self._place(row), row.started_at, obeys)

    def _read(self, tenant: str, trajectories: Collection[str]) -> list[GovernanceRecord]:
        """Return the decisions on stored steps of these trajectories, and on those that now are in one of them."""
        joined = {
            step
            for (whose, step), trajectory in self._moved.items()
            if whose == tenant and trajectory in trajectories
        }
        rows = {row.step_id: row for row in self._known.decisions_in(tenant, trajectories)}
        rows |= {row.step_id: row for row in self._known.decisions(tenant, joined)}
        self._rows |= {(tenant, step): row for step, row in rows.items()}
        return [*rows.values()]


def _own(placed: PlacedCall) -> _Place:
    return placed.call.exchange.client.tenant_id, placed.trajectory_id


def _source(placed: PlacedCall) -> _Place | None:
    """Return the conversation of another session that a call stands on."""
    source = placed.source_trajectory_id
    return None if source is None else (placed.call.exchange.client.tenant_id, source)


def _by_tenant(names: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for tenant, name in names:
        found[tenant].add(name)
    return found
