"""Steps that were handed in again: their identity comes from their content, so the lake knows them.

An exchange of the gateway has a name of its own and comes once. A span or an imported document may
come again long after the assembler has forgotten it (an exporter that repeats, a second import).
"""

from collections import defaultdict
from dataclasses import replace

from governance.known import KnownContent
from trajectory.imported import MODE as IMPORTED
from trajectory.placement import Assembly
from trajectory.telemetry.calls import MODE as TRACED


def without_stored(assembly: Assembly, known: KnownContent) -> Assembly:
    """Return the assembly without the handed-in steps that are stored already."""
    asked: dict[str, set[str]] = defaultdict(set)
    for placed in assembly.placed:
        if placed.call.exchange.mode in (IMPORTED, TRACED):
            asked[placed.call.exchange.client.tenant_id].add(placed.step_id)
    stored = {step for tenant, steps in asked.items() for step in known.known_steps(tenant, steps)}
    if not stored:
        return assembly
    return replace(
        assembly,
        placed=tuple(one for one in assembly.placed if one.step_id not in stored),
        links=tuple(one for one in assembly.links if one.to_step_id not in stored),
    )


__all__ = ["without_stored"]
