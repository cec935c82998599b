"""Corrections of stored steps: only of what is stored, and only pointing at what is stored."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from governance.batch import BatchRows
from governance.stored_content import KnownContent
from governance.vocabulary import reason_word
from trajectory.effects import SideEffect, replay_class
from trajectory.placement import PlacedCorrection
from trajectory.step import Correction, LinkTo


def correct(
    corrections: Sequence[PlacedCorrection], rows: BatchRows, known: KnownContent, now: datetime
) -> list[Correction]:
    """Return the corrections of stored steps.

    Args:
        corrections: what assembly says.
        rows: the rows of this batch.
        known: what the lake holds.
        now: the moment of the correction; the latest one holds.
    """
    stored = _stored(corrections, rows, known)
    return [_correction(one, rows, stored, now) for one in corrections if one.step_id in stored]


def _stored(
    corrections: Sequence[PlacedCorrection], rows: BatchRows, known: KnownContent
) -> set[str]:
    stored = {step.step_id for step in rows.steps}
    asked: dict[str, set[str]] = defaultdict(set)
    for one in corrections:
        named = {one.step_id, *_followed(rows, one.parent_step_id, one.retry_of)}
        named.update(rows.follow(link.from_step_id) for link in one.links)
        asked[one.tenant_id] |= named - stored - rows.not_stored
    for tenant, steps in asked.items():
        stored |= known.known_steps(tenant, steps)
    return stored


def _followed(rows: BatchRows, *steps: str | None) -> list[str]:
    return [rows.follow(step) for step in steps if step is not None]


def _correction(
    one: PlacedCorrection, rows: BatchRows, stored: set[str], now: datetime
) -> Correction:
    parent = None if one.parent_step_id is None else rows.follow(one.parent_step_id)
    is_held = parent is None or parent in stored
    links = [(rows.follow(link.from_step_id), link) for link in one.links]
    return Correction(
        tenant_id=one.tenant_id,
        step_id=one.step_id,
        trajectory_id=one.trajectory_id,
        stored_trajectory_id=one.stored_trajectory_id,
        began=one.began,
        started_at=one.started_at,
        recorded_at=now,
        parent_step_id=parent if is_held else None,
        step_index=one.step_index,
        branch=one.branch,
        role_in_graph=reason_word(one.role_in_graph),
        key_source=reason_word(one.key_source),
        # What the parent's conversation would hold is not there when policy left the parent out.
        context_keep=one.context_keep if is_held and one.context_skip is not None else None,
        context_skip=one.context_skip or 0,
        results_skip=max(one.results_skip, 0),
        retry_of=one.retry_of,
        duplicate_of=one.duplicate_of,
        session_hint=one.session_hint,
        group_id=one.group_id,
        side_effect=one.side_effect,
        replay_class=None if one.side_effect is None else replay_class(SideEffect(one.side_effect)),
        links=tuple(
            LinkTo(link.kind, start, link.trajectory_id, link.recorded_at, link.key_source)
            for start, link in links
            if start in stored and start != one.step_id
        ),
    )
