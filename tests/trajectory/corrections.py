"""What holds of calls after several batches: what was placed, with the corrections that came later."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from trajectory.assembly.result import Assembly, PlacedCall, PlacedCorrection, PlacedLink


@dataclass
class CorrectedCalls:
    """Calls and links as a reader of the lake sees them."""

    placed: list[PlacedCall]
    links: list[PlacedLink]


def corrected(assemblies: Iterable[Assembly]) -> CorrectedCalls:
    """Return calls, in the order of their starts, and links, without repetitions."""
    calls: dict[str, PlacedCall] = {}
    stored: dict[str, PlacedCall] = {}
    links: dict[str, list[PlacedLink]] = {}
    for assembly in assemblies:
        for item in assembly.placed:
            assert item.step_id not in calls
            calls[item.step_id] = stored[item.step_id] = item
        for link in assembly.links:
            links.setdefault(link.to_step_id, []).append(link)
        for item in assembly.corrections:
            calls[item.step_id] = _as_corrected(stored[item.step_id], item)
            links[item.step_id] = list(item.links)
    placed = sorted(
        calls.values(),
        key=lambda item: (item.call.exchange.started_at, item.call.exchange.exchange_id),
    )
    ordered = sorted(
        {link for found in links.values() for link in found},
        key=lambda link: (link.to_step_id, link.kind, link.from_step_id),
    )
    return CorrectedCalls(placed, ordered)


def _as_corrected(stored: PlacedCall, item: PlacedCorrection) -> PlacedCall:
    moved = replace(
        stored,
        trajectory_id=item.trajectory_id,
        step_index=item.step_index,
        branch=item.branch,
        role_in_graph=item.role_in_graph,
        key_source=item.key_source,
        retry_of=item.retry_of,
        duplicate_of=item.duplicate_of,
        session_hint=item.session_hint,
        group_id=item.group_id,
        side_effect=item.side_effect,
    )
    if item.context_skip is None:
        return moved
    return replace(
        moved,
        parent_step_id=item.parent_step_id,
        context_keep=item.context_keep,
        new_messages=stored.new_messages[item.context_skip :],
    )
