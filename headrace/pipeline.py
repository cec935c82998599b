"""One exchange's way through the house: spool → trajectory → governance → lake."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from governance.governor import Governor
from governance.records import GovernedBatch
from headrace.govern.checkpoint import (
    Checkpoint,
    CheckpointStore,
    PendingBatch,
    begun_anew,
    missing_batches,
)
from headrace.govern.side_effects import Witness
from headrace.govern.source import Intake, Source, without_stored
from lakehouse.lake import Lake
from proxy.spool import Cursor, SpoolBatch, SpoolReader
from trajectory.assembly.state import MAX_CALLS
from trajectory.call import Call
from trajectory.dialects.registry import Dialect
from trajectory.effects import SideEffect
from trajectory.gc_pause import uncollected

_TRAIL_BATCHES = 16
_TRAIL_BYTES = 64 * 1024 * 1024
_TRAIL_STATES = 8
"""The assembler's state is written after so many batches, or when the spool holds so many bytes and so
many times the packed state: writing it costs as much as reading twice its size."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What one batch did."""

    batch: int
    records: int
    dispositions: dict[str, int]
    """Exchanges by where they ended up."""
    signals: int
    is_full: bool
    """It ended at a limit: more may be waiting."""
    damaged: int
    """Spool frames that could not be read; they are counted, never guessed."""

    @classmethod
    def of(cls, number: int, batch: SpoolBatch, governed: GovernedBatch) -> "BatchReport":
        """Return what governing made of a batch."""
        return cls(
            number,
            len(batch.records),
            dict(Counter(row.disposition for row in governed.exchanges)),
            len(governed.signals),
            batch.is_full,
            len(batch.damaged),
        )


class GovernorFactory(Protocol):
    """Returns the governor for the next batch; a changed policy bundle gives a new one."""

    def __call__(self) -> Governor: ...


class Pipeline:
    """Carries batches from the spool to the lake, each record exactly once.

    Promise: after a crash at any point the next run appends what is missing and nothing twice
    (see ``headrace.govern.checkpoint``). One pipeline works on one home at a time.
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
        remembered_calls: int = MAX_CALLS,
        behind: Callable[[int, int], None] | None = None,
    ) -> None:
        """Carry from ``spool`` to ``lake``.

        Args:
            spool: what is taken.
            lake: where it goes.
            governor: gives who judges the next batch.
            checkpoints: what is remembered between batches.
            assembly_key: makes all hashes and identifiers of assembly.
            batch_records: how many records a batch has at most.
            tool_effects: what the operator says of tools, by pattern of their names.
            witness: told of each batch.
            dialects: what the settings add to the dialects that everybody knows.
            remembered_calls: of conversations that may go on, how many assembly remembers.
            behind: told of the last batch that was done, and how many up to it the lake lacks.
        """
        self._source = Source(spool, assembly_key, tool_effects, dialects, remembered_calls)
        self._spool = spool
        self.lake = lake
        self._governor = governor
        self._checkpoints = checkpoints
        self._batch_records = batch_records
        self._witness = witness
        self._checkpoint = checkpoints.load()
        if missing := missing_batches(self._checkpoint, lake):
            if behind is not None:
                behind(self._checkpoint.batch, missing)
            self._checkpoint = begun_anew()
            checkpoints.restart(self._checkpoint)
        if self._checkpoint.batch == 0 and not _has_ledger(lake):
            self._checkpoint = replace(self._checkpoint, again=False)
        self._intake: Intake | None = None
        """Kept between batches; dropped when one fails, so that the saved state is read again."""
        self._held_bytes = 0
        """Bodies in the spool that the checkpoint's trail leads over."""

    def run_batch(self) -> BatchReport | None:
        """Carry the next batch; return None when the spool has nothing finished to take.

        Raises:
            RetryableError: it could not be written; nothing was lost, the next call tries again.
        """
        with uncollected():
            try:
                return self._run_batch()
            except BaseException:
                self._intake = None
                raise

    def _run_batch(self) -> BatchReport | None:
        batch = self._take()
        if not batch.records:
            self.settle()
            return None
        self._intake = self._intake or self._remembered()
        assembly = self._intake.place(batch, self._unknown if self._checkpoint.again else None)
        done = self._after(batch)
        # One lease from "is it stored already?" to the commit: an erasure in between would take
        # away the messages that these steps are going to name.
        with self.lake.lease():
            governor = self._governor()
            governed = governor.judge(without_stored(assembly, self.lake.known_content()))
            if self._witness is not None:
                self._witness.before(batch.records, governed)
            self._checkpoints.announce(self._checkpoint, PendingBatch(done.batch, done.cursor))
            self.lake.append(governed, app_id=done.application, version=done.batch)
            governor.stored(governed)
        if self._witness is not None:  # first: a crash leaves it noted twice, never not at all
            self._witness.after(done.batch, governed)
        self._finish(done)
        return BatchReport.of(done.batch, batch, governed)

    def _after(self, batch: SpoolBatch) -> Checkpoint:
        """Return the checkpoint that holds once the batch is in the lake."""
        now, cursor = self._checkpoint, batch.cursor.to_json()
        self._held_bytes += batch.size
        trail = (*(now.trail or (now.cursor,)), cursor)
        done = replace(now, batch=now.batch + 1, cursor=cursor, trail=trail)
        enough = max(_TRAIL_BYTES, _TRAIL_STATES * len(now.assembler))
        if now.again or len(trail) > _TRAIL_BATCHES or self._held_bytes > enough:
            return self._without_trail(done)
        return done

    def _without_trail(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint with what assembly remembers by now."""
        self._intake = self._intake or self._remembered()
        self._held_bytes = 0
        return replace(checkpoint, assembler=self._intake.state(), trail=())

    def settle(self) -> None:
        """Write what assembly remembers, so that the spool lets go of all that is in the lake.

        A batch without records does so; call it when no further one will be asked for.

        Raises:
            RetryableError: it could not be written; nothing was lost.
        """
        if self._checkpoint.trail:
            self._finish(self._without_trail(self._checkpoint))

    def tidy(self) -> None:
        """Let go of held content whose time is over, and of closed segments that are all governed."""
        self._spool.release(Cursor.from_json(self._checkpoint.hold))
        if self._witness is not None:
            self._witness.tidy()

    def _remembered(self) -> Intake:
        """Return an intake as it was after the last batch: the saved state, and what came since."""
        intake = Intake(self._source, self._checkpoint.assembler)
        self._held_bytes = 0
        for start, end in pairwise(map(Cursor.from_json, self._checkpoint.trail)):
            batch = self._spool.take(start, until=end)
            intake.place(batch)
            self._held_bytes += batch.size
        return intake

    def _unknown(self, calls: Sequence[Call]) -> list[Call]:
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


def _has_ledger(lake: Lake) -> bool:
    return bool(lake.query("SELECT 1 FROM exchanges LIMIT 1").num_rows)
