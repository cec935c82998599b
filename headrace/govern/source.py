"""From spool to placed calls: all that comes before judging.

An exchange of the gateway has a name of its own and comes once. A span or an imported document may
come again long after the assembler has forgotten it (an exporter that repeats, a second import).
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from governance.stored_content import KnownContent
from headrace.govern.packing import packed_json, unpacked
from proxy.spool import SpoolBatch, SpoolReader
from trajectory.assembly import Assembler, AssemblerState
from trajectory.assembly.state import MAX_CALLS
from trajectory.call import Call
from trajectory.dialects.registry import Dialect
from trajectory.effects import SideEffect
from trajectory.imported import MODE as IMPORTED
from trajectory.placement import Assembly
from trajectory.reader import read_records
from trajectory.signals import harvest
from trajectory.telemetry.calls import MODE as TRACED

_CALLS_OF_TRAJECTORIES = 12
"""For so many calls one trajectory is remembered, however short it is."""

type Filter = Callable[[Sequence[Call]], Sequence[Call]]


@dataclass(frozen=True, slots=True)
class Source:
    """What is taken, and how it is read and placed."""

    spool: SpoolReader
    assembly_key: bytes
    tool_effects: Mapping[str, SideEffect] | None = None
    dialects: Sequence[Dialect] = ()
    """What the settings add to the dialects that everybody knows: plain HTTP tools."""
    remembered_calls: int = MAX_CALLS
    """Of conversations that may go on."""


class Intake:
    """Reads and places batches, one after another.

    Promise: the same state and the same batches give the same calls in the same places. What it remembers moves on with each batch: see :meth:`state`.
    """

    def __init__(self, source: Source, state: bytes) -> None:
        """Go on from what an earlier intake remembered."""
        self._source = source
        remembered = AssemblerState.from_json(json.loads(b"".join(unpacked(state))))
        remembered.max_calls = source.remembered_calls
        remembered.max_trajectories = max(1, source.remembered_calls // _CALLS_OF_TRAJECTORIES)
        self._assembler = Assembler(
            source.assembly_key, remembered, tool_effects=source.tool_effects
        )

    def place(self, batch: SpoolBatch, only: Filter | None = None) -> Assembly:
        """Read and place what was taken, harvested signals included; ``only`` leaves out calls that are not wanted."""
        calls, feedback = read_records(batch.records, self._source.dialects)
        if only is not None:
            calls = only(calls)
        assembly = self._assembler.assemble(calls, feedback)
        implicit = harvest(self._assembler, assembly)  # what was said is part of its memory
        return replace(assembly, feedback=(*assembly.feedback, *implicit))

    def state(self) -> bytes:
        """Return what is remembered after the latest batch, packed: it is megabytes."""
        return packed_json(self._assembler.state.to_json())


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
