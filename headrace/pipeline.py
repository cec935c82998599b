"""One exchange's way through the house: spool → trajectory → governance → lake."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from governance.engine import Governor
from headrace.checkpoint import (
    Checkpoint,
    CheckpointStore,
    PendingBatch,
    begun_anew,
    missing_batches,
)
from headrace.intake import Intake, Placed, Source
from headrace.intake_process import IntakeEndedError, IntakeProcess
from headrace.noting import Noting
from headrace.repeats import without_stored
from headrace.witness import Witness
from lakehouse.lake import Lake
from proxy.spool import Cursor, SpoolBatch, SpoolReader
from trajectory.assembly.state import MAX_CALLS
from trajectory.call import Call
from trajectory.collector import uncollected
from trajectory.dialects import Dialect
from trajectory.effects import SideEffect
from trajectory.errors import RetryableError
from trajectory.exchange import Exchange

_TRAIL_BATCHES = 16
_TRAIL_BYTES = 64 * 1024 * 1024
_TRAIL_STATES = 8
"""The assembler's state is written after so many batches, or when the spool holds so many bytes and so
many times the packed state: writing it costs as much as reading twice its size."""
_APART_FROM = 100
_APART_FROM_BYTES = 4 * 1024 * 1024
"""Batches of fewer records and bytes are read as fast as another process is asked."""


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


@dataclass(frozen=True, slots=True)
class _Next:
    """The batch that is to be carried: what must be known before it is opened, and how to open it."""

    records: int
    cursor: Cursor
    size: int
    is_full: bool
    open: Callable[[], Placed]


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
        remembered_calls: int = MAX_CALLS,
        apart_from: int = _APART_FROM,
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
            apart_from: from a full batch of so many records on, or of many bytes, a process of its
                own reads.
            behind: told of the last batch that was done, and how many up to it the lake lacks.
        """
        self._source = Source(spool, assembly_key, tool_effects, dialects, remembered_calls)
        self._spool = spool
        self.lake = lake
        self._governor = governor
        self._checkpoints = checkpoints
        self._batch_records = batch_records
        self._witness = witness
        self._apart_from = apart_from
        self._noting = Noting(checkpoints, beside=lake.location.is_local)
        if missing := missing_batches(self._checkpoint, lake):
            if behind is not None:
                behind(self._checkpoint.batch, missing)
            self._noting.begin(begun_anew())
        if self._checkpoint.batch == 0 and not _has_ledger(lake):
            self._noting.latest = replace(self._checkpoint, again=False)
        self._intake: Intake | None = None
        """Kept between batches; dropped when one fails, so that the saved state is read again."""
        self._apart: IntakeProcess | None = None
        """Reads instead, once there was a backlog."""
        self._held_bytes = 0
        """Bodies in the spool that the checkpoint's trail leads over."""

    @property
    def _checkpoint(self) -> Checkpoint:
        return self._noting.latest

    def run_batch(self) -> BatchReport | None:
        """Carry the next batch; return None when the spool has nothing finished to take.

        In a backlog another process reads the batch after it meanwhile, and that this one is done
        is written while that one is judged: after a crash it is carried again under its number.
        """
        with uncollected():
            try:
                return self._run_batch()
            except IntakeEndedError:  # before anything of the batch was written: read it here
                self._forget()
                return self._run_batch()
            except BaseException:
                self._forget()
                raise

    def _run_batch(self) -> BatchReport | None:
        following = self._next()
        if following is None:
            self.settle()
            return None
        return self._carry(following)

    def close(self) -> None:
        """End the process that reads, if there is one; another batch can still be asked for."""
        self._forget()
        with suppress(RetryableError):  # what could not be written is carried again
            self._noting.settle()

    def _carry(self, following: _Next) -> BatchReport:
        number = self._checkpoint.batch + 1
        done = self._after(following, number)
        self._read_ahead(following)
        placed = following.open()
        governor = self._governor()
        # One lease from "is it stored already?" to the commit: an erasure in between would take
        # away the messages that these steps are going to name.
        with self.lake.lease():
            with self._noting.announced(PendingBatch(number, done.cursor)):
                governed = governor.judge(
                    without_stored(placed.assembly, self.lake.known_content())
                )
            if self._witness is not None:
                exchanges = (one for one in placed.batch.records if isinstance(one, Exchange))
                self._witness.before(exchanges, governed)
            self.lake.append(governed, app_id=done.application, version=number)
            governor.stored(governed)
        if self._witness is not None:  # first: a crash leaves it noted twice, never not at all
            self._witness.after(number, governed)
        self._finish(done)
        dispositions: dict[str, int] = {}
        for row in governed.exchanges:
            dispositions[row.disposition] = dispositions.get(row.disposition, 0) + 1
        return BatchReport(
            number,
            following.records,
            dispositions,
            len(governed.signals),
            following.is_full,
            len(placed.batch.damaged),
        )

    def _next(self) -> _Next | None:
        """Return the next batch, from the process that reads or read here."""
        if self._apart is not None:
            try:
                # What was asked for ahead may have found nothing that is there by now.
                parcel = self._apart.receive() if self._apart.is_asked else None
                if parcel is None:
                    self._apart.ask(Cursor.from_json(self._checkpoint.cursor), self._batch_records)
                    parcel = self._apart.receive()
            except IntakeEndedError:
                self._forget()
            else:
                if parcel is None:
                    return None
                return _Next(
                    parcel.records, parcel.cursor, parcel.size, parcel.is_full, parcel.open
                )
        batch = self._take()
        if not batch.records:
            return None
        self._intake = self._intake or self._remembered()
        placed = self._intake.place(batch, self._without_stored if self._checkpoint.again else None)
        return _Next(len(batch.records), batch.cursor, batch.size, batch.is_full, lambda: placed)

    def _read_ahead(self, current: _Next) -> None:
        """Have the batch after this one read, when more is waiting."""
        if not current.is_full or self._checkpoint.again:
            return
        try:
            if self._apart is None and self._intake is not None:
                if current.records < self._apart_from and current.size < _APART_FROM_BYTES:
                    return
                self._apart = IntakeProcess(self._source, self._intake.state())
                self._intake = None
            if self._apart is not None:
                self._apart.ask(current.cursor, self._batch_records)
        except IntakeEndedError:
            self._forget()

    def _forget(self) -> None:
        """Drop what is remembered in memory: the saved state and the spool give it again."""
        self._intake = None
        if self._apart is not None:
            self._apart.close()
            self._apart = None

    def _after(self, following: _Next, number: int) -> Checkpoint:
        """Return the checkpoint that holds once the batch is in the lake."""
        now, cursor = self._checkpoint, following.cursor.to_json()
        self._held_bytes += following.size
        trail = (*(now.trail or (now.cursor,)), cursor)
        enough = max(_TRAIL_BYTES, _TRAIL_STATES * len(now.assembler))
        if now.again or len(trail) > _TRAIL_BATCHES or self._held_bytes > enough:
            self._held_bytes = 0
            return replace(now, batch=number, cursor=cursor, assembler=self._state(), trail=())
        return replace(now, batch=number, cursor=cursor, trail=trail)

    def _state(self) -> bytes:
        """Return what assembly remembers after the last batch that was given.

        Raises:
            IntakeEndedError: the process that knows it has ended; the next attempt does without.
        """
        if self._apart is not None:
            return self._apart.state()
        self._intake = self._intake or self._remembered()
        return self._intake.state()

    def settle(self) -> None:
        """Write what assembly remembers, so that the spool lets go of all that is in the lake.

        A batch without records does so; call it when no further one will be asked for.

        Raises:
            RetryableError: it could not be written; nothing was lost.
        """
        if self._is_ahead:  # the process knows a batch that the lake does not
            self._forget()
        try:
            self._noting.settle()
        except RetryableError:
            self._forget()
            raise
        if self._checkpoint.trail:
            try:
                state = self._state()
            except IntakeEndedError:
                self._forget()
                state = self._state()
            self._held_bytes = 0
            self._finish(replace(self._checkpoint, assembler=state, trail=()))

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

    @property
    def _is_ahead(self) -> bool:
        """Whether a process reads the batch after the latest."""
        return self._apart is not None and self._apart.is_asked

    def _finish(self, checkpoint: Checkpoint) -> None:
        # Along a trail the spool lets nothing go, so that nothing waits for this to be on disk but
        # the next announcement.
        self._noting.complete(checkpoint, beside=self._is_ahead and bool(checkpoint.trail))
        self._spool.release(Cursor.from_json(checkpoint.hold))


def _has_ledger(lake: Lake) -> bool:
    return bool(lake.query("SELECT 1 FROM exchanges LIMIT 1").num_rows)
