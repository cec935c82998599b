"""Takes batches from the spool and places their calls in trajectories.

An exchange of the gateway has a name of its own and comes once. A span or an imported document may
come again long after the assembler has forgotten it (an exporter that repeats, a second import), and
so may a release from quarantine: one that was killed is done again, and gives the same name.

Whom the calls of open traces belong to is remembered with the open conversations. It names people, and is sealed.
"""

import base64
import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import pairwise

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from governance.stored_content import KnownContent
from headrace.govern.checkpoint import Checkpoint, CheckpointStore
from headrace.govern.packed_json import packed_json, unpacked
from lakehouse.read.conversations import RunSql
from proxy.spool import Cursor, SpoolBatch, SpoolReader
from trajectory.assembly import Assembler, AssemblerState
from trajectory.assembly.effects import SideEffect
from trajectory.assembly.result import Assembly, PlacedCall, PlacedPeople
from trajectory.assembly.signals import harvest
from trajectory.assembly.state import MAX_CALLS
from trajectory.call import Call
from trajectory.dialects.hints import with_people
from trajectory.dialects.registry import Dialect
from trajectory.errors import IntegrityError
from trajectory.exchange import Exchange, SpoolRecord, has_folder
from trajectory.imports import MODE as IMPORTED
from trajectory.reader import read_records
from trajectory.telemetry.calls import MODE as TRACED
from trajectory.telemetry.trace_people import TracePeople

_CALLS_OF_TRAJECTORIES = 12
"""For so many calls one trajectory is remembered, however short it is."""
_TRAIL_BATCHES = 64
_TRAIL_BYTES = 64 * 1024 * 1024
_TRAIL_STATES = 8
"""The open conversations are written after so many batches, or when the spool holds so many bytes and so many
times their packed form. Writing them costs as much as reading twice their size. After 16 batches they took 6 % of
the governor's time in batches of 200."""
_TRACES = "traces"
_NONCE_BYTES = 12


class Source:
    """Takes batches from the spool and places their calls.

    Promise: the same memory and the same batches give the same calls in the same places. Open
    conversations stay in memory between batches; after a batch that failed they are read again.
    """

    def __init__(
        self,
        spool: SpoolReader,
        query: RunSql,
        checkpoints: CheckpointStore,
        *,
        assembly_key: bytes,
        batch_records: int,
        tool_effects: Mapping[str, SideEffect] | None = None,
        dialects: Sequence[Dialect] = (),
        remembered_calls: int = MAX_CALLS,
    ) -> None:
        """Take from ``spool``.

        Args:
            spool: what is taken.
            query: asks the lake for what a spool that is read from its beginning brings again.
            checkpoints: where the open conversations are kept.
            assembly_key: makes all hashes and identifiers of assembly.
            batch_records: how many records a batch has at most.
            tool_effects: what the operator says of tools, by pattern of their names.
            dialects: what the settings add to the dialects that everybody knows: plain HTTP tools.
            remembered_calls: of conversations that may go on, how many assembly remembers.
        """
        self._spool = spool
        self._query = query
        self._checkpoints = checkpoints
        self._key = assembly_key
        self._batch_records = batch_records
        self._tool_effects = tool_effects
        self._dialects = dialects
        self._remembered_calls = remembered_calls
        self._traces = TracePeople(assembly_key)
        self._seal = AESGCM(blake2b(b"traces", key=assembly_key[:64], digest_size=32).digest())
        self._assembler: Assembler | None = None
        self._stands_after: int | None = None
        """The number of the batch after which the assembler stands; None where one failed."""
        self._trail_bytes = 0
        """Bodies in the spool that the checkpoint's trail leads over."""
        self._packed_bytes = 0

    def take(self, checkpoint: Checkpoint) -> SpoolBatch:
        """Take the next batch: the announced one as it was, or what is finished by now."""
        until = checkpoint.announced
        return self._spool.take(
            Cursor.from_json(checkpoint.cursor),
            limit=self._batch_records,
            until=None if until is None else Cursor.from_json(until),
        )

    def place(self, batch: SpoolBatch, checkpoint: Checkpoint) -> Assembly:
        """Read the calls of the batch after a checkpoint and place them, harvested signals included."""
        assembler = self._assembler_after(checkpoint)
        self._stands_after = None
        assembly = self._place(assembler, batch, passes_over_stored=checkpoint.again)
        self._stands_after = checkpoint.batch + 1
        return assembly

    def due(self, checkpoint: Checkpoint) -> bytes | None:
        """Return the open conversations, packed, when they are to be written with the batch just placed."""
        enough = max(_TRAIL_BYTES, _TRAIL_STATES * self._packed_bytes)
        is_long = len(checkpoint.trail) >= _TRAIL_BATCHES or self._trail_bytes > enough
        return self._packed() if checkpoint.again or is_long else None

    def remembered(self, checkpoint: Checkpoint) -> bytes:
        """Return the open conversations as they are after a checkpoint, packed: it is megabytes."""
        self._assembler_after(checkpoint)
        return self._packed()

    def release(self) -> None:
        """Let the spool go of closed segments that no start will need."""
        self._spool.release(Cursor.from_json(self._checkpoints.load().hold))

    def _assembler_after(self, checkpoint: Checkpoint) -> Assembler:
        """Return the assembler as it was after a checkpoint: read again, if it does not stand there."""
        if self._assembler is None or self._stands_after != checkpoint.batch:
            packed = self._checkpoints.remembered()
            saved = json.loads(b"".join(unpacked(packed)))
            self._traces = self._opened(saved.pop(_TRACES, None))
            state = AssemblerState.from_json(saved)
            state.max_calls = self._remembered_calls
            state.max_trajectories = max(1, self._remembered_calls // _CALLS_OF_TRAJECTORIES)
            self._assembler = Assembler(self._key, state, tool_effects=self._tool_effects)
            self._trail_bytes, self._packed_bytes = 0, len(packed)
            for start, end in pairwise(map(Cursor.from_json, checkpoint.trail)):
                self._place(self._assembler, self._spool.take(start, until=end))
            self._stands_after = checkpoint.batch
        return self._assembler

    def _place(
        self, assembler: Assembler, batch: SpoolBatch, *, passes_over_stored: bool = False
    ) -> Assembly:
        self._trail_bytes += batch.size
        calls, feedback = read_records(
            [
                one
                for one in batch.records
                if has_folder(one.client.tenant_id) and not _is_torn_release(one)
            ],
            self._dialects,
        )
        named = self._traces.take(calls)
        assembly = assembler.assemble(
            self._unknown(named.calls) if passes_over_stored else named.calls, feedback
        )
        implicit = harvest(assembler, assembly)  # what was said is part of its memory
        repeated = self._traces.repeated(assembly.placed)
        return replace(
            assembly,
            placed=_with_people(assembly.placed, repeated),
            feedback=(*assembly.feedback, *implicit),
            people=(*named.people, *repeated),
        )

    def _unknown(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Leave out what the ledger has already: the spool is read again from its beginning."""
        stored = self._in_ledger(calls)
        return [
            call
            for call in calls
            if call.exchange.is_context or call.exchange.exchange_id not in stored
        ]

    def without_stored(self, assembly: Assembly, known: KnownContent) -> Assembly:
        """Return the assembly without what was handed in or released, and is stored already."""
        assembly = _without_stored_steps(assembly, known)
        placed = (one.call for one in assembly.placed)
        released = [one for one in (*placed, *assembly.unplaced) if one.exchange.released_of]
        if not (stored := self._in_ledger(released)):
            return assembly
        fresh = tuple(one for one in assembly.placed if one.call.exchange.exchange_id not in stored)
        gone = {one.step_id for one in assembly.placed} - {one.step_id for one in fresh}
        return replace(
            assembly,
            placed=fresh,
            unplaced=tuple(
                one for one in assembly.unplaced if one.exchange.exchange_id not in stored
            ),
            links=tuple(one for one in assembly.links if one.to_step_id not in gone),
        )

    def _in_ledger(self, calls: Sequence[Call]) -> set[str]:
        """Return the ids of these calls' exchanges that the ledger has."""
        if not calls:
            return set()
        found = self._query(
            "SELECT exchange_id FROM exchanges WHERE started_at >= ? "
            "AND exchange_id IN (SELECT unnest(?::VARCHAR[]))",
            [
                min(call.exchange.started_at for call in calls),
                list({call.exchange.exchange_id for call in calls}),
            ],
        )
        return set(found["exchange_id"].to_pylist())

    def _packed(self) -> bytes:
        if self._assembler is None:
            raise RuntimeError("place() comes first")
        said = self._assembler.state.to_json()
        if self._traces:
            said = {**said, _TRACES: self._sealed(self._traces)}
        packed = packed_json(said)
        self._trail_bytes, self._packed_bytes = 0, len(packed)
        return packed

    def _sealed(self, traces: TracePeople) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        plain = packed_json(traces.to_json())
        sealed = nonce + self._seal.encrypt(nonce, plain, _TRACES.encode())
        return base64.b64encode(sealed).decode("ascii")

    def _opened(self, sealed: str | None) -> TracePeople:
        """Return what is remembered of traces.

        Raises:
            IntegrityError: it does not open.
        """
        traces = TracePeople(self._key, 2 * self._remembered_calls)
        if sealed is None:
            return traces
        data = base64.b64decode(sealed)
        try:
            plain = self._seal.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _TRACES.encode())
        except (InvalidTag, ValueError):
            raise IntegrityError(
                "what the checkpoint remembers of traces does not open: it was changed, or the master key was."
            ) from None
        traces.restore(json.loads(b"".join(unpacked(plain))))
        return traces


def _with_people(
    placed: tuple[PlacedCall, ...], people: Sequence[PlacedPeople]
) -> tuple[PlacedCall, ...]:
    """Return calls with those to whom spans that repeat them belong."""
    found = {one.step_id: one for one in people}
    return tuple(
        one
        if (told := found.get(one.step_id)) is None
        else replace(one, call=with_people(one.call, (told.end_user, *told.also_named)))
        for one in placed
    )


def _is_torn_release(record: SpoolRecord) -> bool:
    """Tell whether a release was killed while it wrote this: its case is held still, whole."""
    return isinstance(record, Exchange) and bool(record.released_of) and record.ended_at is None


def _without_stored_steps(assembly: Assembly, known: KnownContent) -> Assembly:
    """Return the assembly without the steps that are stored already: handed in again, or released."""
    asked: dict[str, set[str]] = defaultdict(set)
    for placed in assembly.placed:
        exchange = placed.call.exchange
        if exchange.mode in (IMPORTED, TRACED) or exchange.released_of:
            asked[exchange.client.tenant_id].add(placed.step_id)
    stored = {step for tenant, steps in asked.items() for step in known.known_steps(tenant, steps)}
    if not stored:
        return assembly
    return replace(
        assembly,
        placed=tuple(one for one in assembly.placed if one.step_id not in stored),
        links=tuple(one for one in assembly.links if one.to_step_id not in stored),
    )
