"""One exchange's way through the house: spool → trajectory → governance → lake."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from trajectory.dialects import Dialect
from trajectory.effects import SideEffect
from trajectory.exchange import Exchange
from trajectory.signals import harvest


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

    def run_batch(self) -> BatchReport | None:
        """Carry the next batch; return None when the spool has nothing finished to take."""
        batch = self._take()
        if not batch.records:
            return None
        number, cursor = self._checkpoint.batch + 1, batch.cursor.to_json()
        self._checkpoints.announce(self._checkpoint, PendingBatch(number, cursor))
        assembler, self._assembler = self._assembler or self._saved_assembler(), None
        calls, feedback = read_records(batch.records, self._dialects)
        if self._checkpoint.again:
            calls = self._without_stored(calls)
        assembly = assembler.assemble(calls, feedback)
        harvested = replace(assembly, feedback=(*assembly.feedback, *harvest(assembly)))
        governor = self._governor()
        # One lease from "is it stored already?" to the commit: an erasure in between would take
        # away the messages that these steps are going to name.
        with self.lake.lease():
            governed = governor.judge(without_stored(harvested, self.lake.known_content()))
            if self._witness is not None:
                exchanges = (record for record in batch.records if isinstance(record, Exchange))
                self._witness.before(exchanges, governed)
            self.lake.append(governed, app_id=self._checkpoint.application, version=number)
            governor.stored(governed)
        self._finish(
            replace(
                self._checkpoint,
                batch=number,
                cursor=cursor,
                assembler=assembler.state.to_json(),
            )
        )
        self._assembler = assembler
        if self._witness is not None:
            self._witness.after(number, governed)
        dispositions: dict[str, int] = {}
        for row in governed.exchanges:
            dispositions[row.disposition] = dispositions.get(row.disposition, 0) + 1
        return BatchReport(
            number, len(batch.records), dispositions, len(governed.signals), len(batch.damaged)
        )

    def tidy(self) -> None:
        """Let go of held content whose time is over."""
        if self._witness is not None:
            self._witness.tidy()

    def _saved_assembler(self) -> Assembler:
        return Assembler(
            self._assembly_key,
            AssemblerState.from_json(self._checkpoint.assembler),
            tool_effects=self._tool_effects,
        )

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
        self._spool.release(Cursor.from_json(checkpoint.cursor))


def _has_ledger(lake: Lake) -> bool:
    return bool(lake.query("SELECT 1 FROM exchanges LIMIT 1").num_rows)
