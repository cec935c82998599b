"""One exchange's way through the house: spool → trajectory → governance → lake."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from governance.engine import Governor
from headrace.checkpoint import Checkpoint, CheckpointStore, PendingBatch
from headrace.repeats import without_stored
from headrace.witness import Witness
from lakehouse.lake import Lake
from proxy.spool import Cursor, SpoolBatch, SpoolReader
from trajectory.assembly import Assembler, AssemblerState
from trajectory.call import Call
from trajectory.carried import read_records
from trajectory.collector import uncollected
from trajectory.dialects import Dialect
from trajectory.effects import SideEffect
from trajectory.exchange import Exchange
from trajectory.placement import Assembly
from trajectory.signals import harvest

_TRAIL_BATCHES = 16
_TRAIL_BYTES = 64 * 1024 * 1024
"""The assembler's state is written after so many batches, or so many bytes held in the spool."""
_TURN_SECONDS = 0.0005


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What one batch did."""

    batch: int
    records: int
    dispositions: dict[str, int]
    """Exchanges by where they ended up."""
    signals: int
    damaged: int
    """Spool frames that could not be read; they are counted, never guessed."""


@dataclass(frozen=True, slots=True)
class _Assembled:
    """A batch that was taken, read and placed, and not yet judged."""

    batch: SpoolBatch
    assembly: Assembly
    """Harvested signals included."""
    assembler: Assembler
    """Its state is the one after this batch, until it places the next."""


class GovernorFactory(Protocol):
    """Returns the governor for the next batch; a changed policy bundle gives a new one."""

    def __call__(self) -> Governor: ...


class Pipeline:
    """Carries batches from the spool to the lake, each record exactly once.

    Promise: after a crash at any point the next run appends what is missing and nothing twice
    (see ``headrace.checkpoint``). One pipeline works on one home at a time.
    """

    def __init__(
        self,
        *,
        spool: SpoolReader,
        lake: Lake,
        governor: GovernorFactory,
        checkpoints: CheckpointStore,
        assembly_key: bytes,
        batch_records: int,
        tool_effects: Mapping[str, SideEffect] | None = None,
        witness: Witness | None = None,
        dialects: Sequence[Dialect] = (),
    ) -> None:
        self._spool = spool
        self.lake = lake
        self._governor = governor
        self._checkpoints = checkpoints
        self._assembly_key = assembly_key
        self._batch_records = batch_records
        self._tool_effects = tool_effects
        self._witness = witness
        self._dialects = dialects
        """What the settings add to the dialects that everybody knows: plain HTTP tools."""
        self._checkpoint = checkpoints.load()
        if self._checkpoint.batch == 0 and not _has_ledger(lake):
            self._checkpoint = replace(self._checkpoint, again=False)
        self._assembler: Assembler | None = None
        """Kept between batches; dropped when a batch fails, so that the saved state is read again."""
        self._ahead: _Assembled | None = None
        """The batch after the last one, when it was read meanwhile."""
        self._held_bytes = 0
        """Bodies in the spool that the checkpoint's trail leads over."""

    def run_batch(self) -> BatchReport | None:
        """Carry the next batch; return None when the spool has nothing finished to take.

        While a full batch is being committed, the one after it is taken and assembled already.
        """
        with uncollected():
            return self._run_batch()

    def _run_batch(self) -> BatchReport | None:
        assembled, self._ahead = self._ahead, None
        if assembled is None:
            assembled = self._assemble(self._take(), self._assembler)
        if assembled is None:
            self.settle()
            return None
        self._assembler = None
        batch, number = assembled.batch, self._checkpoint.batch + 1
        done = self._after(assembled, number)
        self._checkpoints.announce(self._checkpoint, PendingBatch(number, done.cursor))
        governor = self._governor()
        # One lease from "is it stored already?" to the commit: an erasure in between would take
        # away the messages that these steps are going to name.
        with self.lake.lease():
            governed = governor.judge(without_stored(assembled.assembly, self.lake.known_content()))
            if self._witness is not None:
                exchanges = (record for record in batch.records if isinstance(record, Exchange))
                self._witness.before(exchanges, governed)
            with ThreadPoolExecutor(1) as beside:
                appended = beside.submit(
                    self.lake.append, governed, app_id=done.application, version=number
                )
                ahead, assembler = self._read_ahead(assembled)
                appended.result()
            governor.stored(governed)
        self._finish(done)
        self._assembler, self._ahead = assembler, ahead
        if self._witness is not None:
            self._witness.after(number, governed)
        dispositions: dict[str, int] = {}
        for row in governed.exchanges:
            dispositions[row.disposition] = dispositions.get(row.disposition, 0) + 1
        return BatchReport(
            number, len(batch.records), dispositions, len(governed.signals), len(batch.damaged)
        )

    def _assemble(self, batch: SpoolBatch, assembler: Assembler | None) -> "_Assembled | None":
        """Read and place what was taken."""
        if not batch.records:
            return None
        assembler = assembler or self._remembered()
        calls, feedback = read_records(batch.records, self._dialects)
        if self._checkpoint.again:
            calls = self._without_stored(calls)
        assembly = assembler.assemble(calls, feedback)
        implicit = harvest(assembler, assembly)
        harvested = replace(assembly, feedback=(*assembly.feedback, *implicit))
        return _Assembled(batch, harvested, assembler)

    def _read_ahead(self, current: "_Assembled") -> "tuple[_Assembled | None, Assembler | None]":
        """Take and place the batch after the one that is being committed, when more is waiting."""
        if len(current.batch.records) < self._batch_records or self._checkpoint.again:
            return None, current.assembler
        try:
            with _taking_turns():
                batch = self._spool.take(current.batch.cursor, limit=self._batch_records)
                return self._assemble(batch, current.assembler), current.assembler
        except Exception:  # noqa: BLE001 - the next batch meets it again, and raises it there
            return None, None

    def _after(self, assembled: "_Assembled", number: int) -> Checkpoint:
        """Return the checkpoint that holds once the batch is in the lake."""
        now, cursor = self._checkpoint, assembled.batch.cursor.to_json()
        self._held_bytes += assembled.batch.size
        trail = (*(now.trail or (now.cursor,)), cursor)
        if now.again or len(trail) > _TRAIL_BATCHES or self._held_bytes > _TRAIL_BYTES:
            self._held_bytes = 0
            state = assembled.assembler.state.to_json()
            return replace(now, batch=number, cursor=cursor, assembler=state, trail=())
        return replace(now, batch=number, cursor=cursor, trail=trail)

    def settle(self) -> None:
        """Write the assembler's state, so that the spool lets go of all that is in the lake.

        A batch without records does so; call it when no further one will be asked for.

        Raises:
            RetryableError: it could not be written; nothing was lost.
        """
        if self._ahead is not None:  # the assembler knows a batch that the lake does not
            self._ahead = self._assembler = None
        if self._checkpoint.trail:
            assembler = self._assembler or self._remembered()
            self._assembler, self._held_bytes = assembler, 0
            state = assembler.state.to_json()
            self._finish(replace(self._checkpoint, assembler=state, trail=()))

    def tidy(self) -> None:
        """Let go of held content whose time is over, and of closed segments that are all governed."""
        self._spool.release(Cursor.from_json(self._checkpoint.hold))
        if self._witness is not None:
            self._witness.tidy()

    def _remembered(self) -> Assembler:
        """Return the assembler as it was after the last batch: the saved state, and what came since."""
        assembler = Assembler(
            self._assembly_key,
            AssemblerState.from_json(self._checkpoint.assembler),
            tool_effects=self._tool_effects,
        )
        self._held_bytes = 0
        for start, end in pairwise(map(Cursor.from_json, self._checkpoint.trail)):
            batch = self._spool.take(start, until=end)
            assembly = assembler.assemble(*read_records(batch.records, self._dialects))
            harvest(assembler, assembly)  # what was said is part of its memory
            self._held_bytes += batch.size
        return assembler

    def _without_stored(self, calls: Sequence[Call]) -> list[Call]:
        """Leave out what the ledger has already: the spool is read again from its beginning."""
        if not calls:
            return []
        found = self.lake.query(
            "SELECT exchange_id FROM exchanges WHERE started_at >= ? "
            "AND exchange_id IN (SELECT unnest(?::VARCHAR[]))",
            parameters=[
                min(call.exchange.started_at for call in calls),
                list({call.exchange.exchange_id for call in calls}),
            ],
        )
        stored = set(found["exchange_id"].to_pylist())
        return [call for call in calls if call.exchange.exchange_id not in stored]

    def _take(self) -> SpoolBatch:
        cursor = Cursor.from_json(self._checkpoint.cursor)
        pending = self._checkpoints.pending()
        if pending is None or pending.batch <= self._checkpoint.batch:
            return self._spool.take(cursor, limit=self._batch_records)
        return self._spool.take(cursor, until=Cursor.from_json(pending.cursor))

    def _finish(self, checkpoint: Checkpoint) -> None:
        self._checkpoints.complete(checkpoint)
        self._checkpoint = checkpoint
        self._spool.release(Cursor.from_json(checkpoint.hold))


@contextmanager
def _taking_turns() -> Iterator[None]:
    """Let threads wait less for each other: a commit takes Python's lock often and briefly."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def _has_ledger(lake: Lake) -> bool:
    return bool(lake.query("SELECT 1 FROM exchanges LIMIT 1").num_rows)
