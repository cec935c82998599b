"""Shadows: what another model answered to a copy of a call is kept as that call is, and not before it.

The copy says what the call's person said. So it has the call's people, purposes, retention and holds; where the
call is not stored, neither is the copy. It waits in quarantine for a call that is not judged yet or held itself.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from governance.consent import CONVERSATION
from governance.passes.calls import EndedCall, LiveCall, held_early
from governance.passes.rows import BatchRows
from governance.records import Disposition, GovernanceRecord
from governance.stored_content import KnownContent, LedgerLine
from trajectory.assembly.result import PlacedCall
from trajectory.exchange import released_name

AWAITS_CALL = "shadow:awaits-call"
"""Why a copy is held whose call is not judged yet, or is held; it is judged again after that call."""
_NOT_STORED = "shadow:call-not-stored"


class SortedCopies(NamedTuple):
    """The copies of a batch by what became of their calls."""

    going: list[PlacedCall]
    live: dict[str, LiveCall]
    """Their calls, by the copies' steps."""
    ended: list[EndedCall]
    """Copies that wait for their call, or whose call is not stored."""


def judged_lines(
    known: KnownContent,
    tenant: str,
    exchanges: Collection[str],
    here: Mapping[str, LedgerLine] | None = None,
) -> dict[str, LedgerLine]:
    """Return the latest line in the ledger of these exchanges, for those that were judged.

    A held one that was released has a line under another name for each time that it was judged.

    Args:
        known: what the lake already holds.
        tenant: whose exchanges.
        exchanges: their names when they were captured.
        here: lines that are not in the lake yet.
    """
    here = here or {}
    found: dict[str, LedgerLine] = {}
    names = {one: one for one in exchanges}
    while names:
        asked = {*names.values()}
        lines = known.ledger(tenant, asked - here.keys())
        lines |= {name: here[name] for name in asked & here.keys()}
        found |= {one: lines[name] for one, name in names.items() if name in lines}
        names = {
            one: released_name(name)
            for one, name in names.items()
            if name in lines and lines[name].disposition == Disposition.QUARANTINED
        }
    return found


def sort_copies(
    known: KnownContent,
    copies: Sequence[PlacedCall],
    rows: BatchRows,
    changed: Iterable[GovernanceRecord],
) -> SortedCopies:
    """Return which copies go on with their call.

    Args:
        known: what the lake already holds.
        copies: the copies of the batch.
        rows: the rows of its other calls.
        changed: new decisions on calls of earlier batches.
    """
    newest = {(row.tenant_id, row.step_id): row for row in (*rows.governance, *changed)}
    lines = _lines(known, copies, rows)
    steps = {
        one.step_id: rows.follow(line.step_id)
        for one in copies
        if (line := lines.get(one.step_id)) is not None and line.step_id is not None
    }
    live = _live(known, copies, steps, newest)
    result = SortedCopies([], live, [])
    for one in copies:
        line = lines.get(one.step_id)
        if one.step_id in live:
            result.going.append(one)
        elif line is None or line.disposition == Disposition.QUARANTINED:
            waits = held_early(one.call, "policy", AWAITS_CALL, one)
            result.ended.append(replace(waits, awaits=(one.call.exchange.shadow_of,)))
        else:
            gone = EndedCall(
                call=one.call,
                placed=one,
                disposition=Disposition.LEFT_OUT,
                reasons=(_NOT_STORED,),
            )
            result.ended.append(gone)
    return result


def followed(
    known: KnownContent, changed: Iterable[GovernanceRecord]
) -> Iterator[GovernanceRecord]:
    """Yield new decisions on stored copies of calls on which there are new decisions."""
    tenants: dict[str, dict[str, GovernanceRecord]] = defaultdict(dict)
    for row in changed:
        tenants[row.tenant_id][row.step_id] = row
    for tenant, decisions in tenants.items():
        copies = known.copies(tenant, decisions)
        live = {copy: decisions[step] for step, names in copies.items() for copy in names}
        rows = {row.step_id: row for row in known.decisions(tenant, live)} | decisions
        for step in sorted(live.keys() & rows.keys()):
            row = rows[step]
            now = _as_live(row, live[step])
            if (now.purposes, now.subjects, now.decision) != (
                row.purposes,
                row.subjects,
                row.decision,
            ):
                yield now


def awaiting(row: GovernanceRecord, live: Mapping[str, LiveCall]) -> GovernanceRecord:
    """Return the decision on a copy of this batch: it waits for an answer where its call does."""
    call = live.get(row.step_id)
    return row.until_answered() if call is not None and call.decision.awaits_answer else row


def _as_live(row: GovernanceRecord, live: GovernanceRecord) -> GovernanceRecord:
    said = (reason for reason in live.reasons if reason.startswith(CONVERSATION))
    row = row.until_answered() if live.awaits_answer else row.answered()
    return replace(
        row,
        decided_at=row.decided_again(live.decided_at),
        policy_hash=live.policy_hash,
        purposes=tuple(one for one in row.purposes if one in live.purposes),
        reasons=tuple(dict.fromkeys([*row.reasons, *said])),
        subjects=tuple(dict.fromkeys([*row.subjects, *live.subjects])),
    )


def _lines(
    known: KnownContent, copies: Sequence[PlacedCall], rows: BatchRows
) -> dict[str, LedgerLine]:
    """Return the ledger's line on each copy's call, by the copies' steps."""
    here = {row.exchange_id: LedgerLine(row.disposition, row.step_id) for row in rows.exchanges}
    asked: dict[str, set[str]] = defaultdict(set)
    for one in copies:
        asked[one.call.exchange.client.tenant_id].add(one.call.exchange.shadow_of)
    found = {
        (tenant, name): line
        for tenant, names in asked.items()
        for name, line in judged_lines(known, tenant, names, here).items()
    }
    places = {
        one.step_id: (one.call.exchange.client.tenant_id, one.call.exchange.shadow_of)
        for one in copies
    }
    return {step: found[place] for step, place in places.items() if place in found}


def _live(
    known: KnownContent,
    copies: Sequence[PlacedCall],
    steps: Mapping[str, str],
    newest: Mapping[tuple[str, str], GovernanceRecord],
) -> dict[str, LiveCall]:
    """Return the stored calls of these copies, by the copies' steps."""
    tenants: dict[str, list[str]] = defaultdict(list)
    for one in copies:
        if one.step_id in steps:
            tenants[one.call.exchange.client.tenant_id].append(one.step_id)
    found: dict[str, LiveCall] = {}
    for tenant, names in tenants.items():
        here = {step: row for (whose, step), row in newest.items() if whose == tenant}
        decided = {row.step_id: row for row in known.decisions(tenant, [steps[n] for n in names])}
        live = {name: (decided | here).get(steps[name]) for name in names}
        kept = {name: row for name, row in live.items() if row is not None and _is_kept(row)}
        places = {row.trajectory_id for row in kept.values()}
        before = {row.step_id: row for row in known.decisions_in(tenant, places)}
        around: dict[str, list[GovernanceRecord]] = defaultdict(list)
        for row in (before | here).values():
            around[row.trajectory_id].append(row)
        for name, row in kept.items():
            people = (
                person
                for other in around[row.trajectory_id]
                if other.counts_from <= row.started_at
                for person in other.subjects
            )
            found[name] = LiveCall(row, tuple(dict.fromkeys([*row.subjects, *people])))
    return found


def _is_kept(row: GovernanceRecord) -> bool:
    return row.keeps_content or row.awaits_answer
