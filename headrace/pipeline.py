"""One exchange's way through the house: spool → trajectory → governance → lake."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from governance.audit import GOVERNOR, AuditLog
from governance.governor import Governor
from governance.policy.retention import LegalHold
from governance.records import GovernedBatch
from headrace.govern.checkpoint import CheckpointStore
from headrace.govern.quarantine_store import QuarantineStore
from headrace.govern.source import Source
from headrace.services.awaited_people import AwaitedPeople
from headrace.services.holds import holds_exchange
from headrace.services.waiting_cases import WaitingCases
from lakehouse.lake import Lake
from lakehouse.price_records import RecordedPrices
from proxy.spool import SpoolBatch
from trajectory.assembly.result import Assembly
from trajectory.dialects.mcp import with_answer
from trajectory.errors import RetryableError
from trajectory.exchange import Exchange, has_folder

DISK_ERRORS = (OSError, sqlite3.OperationalError)
"""What is raised where a disk is full or refuses."""


@contextmanager
def _retryable() -> Iterator[None]:
    """Turn what a disk refuses into an error after which the same is tried again."""
    try:
        yield
    except DISK_ERRORS as error:
        raise RetryableError(
            f"a file could not be written ({error}); nothing was lost: check disk space and permissions"
        ) from error


@dataclass(frozen=True, slots=True)
class BatchReport:
    """Result of one batch."""

    batch: int
    records: int
    dispositions: dict[str, int]
    """Exchanges by where they ended up."""
    signals: int
    is_full: bool
    """It ended at a limit: more may be waiting."""
    damaged: int
    """Spool frames that could not be read; they are counted, never guessed."""
    without_folder: int
    """Records of tenants whose name no folder of the lake can have; they are left out."""

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
            sum(_without_folder(batch).values()),
        )


class OtherHomes(Protocol):
    """The other homes of the lake."""

    def look(self, in_force: Sequence[LegalHold]) -> None:
        """Carry out what they erased, and tell them the legal holds of the policy in force here."""
        ...

    def legal_holds(self) -> tuple[LegalHold, ...]:
        """Return theirs."""
        ...


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Carries batches from the spool to the lake, each record exactly once.

    Promise: after a crash at any point the next run appends what is missing and nothing twice
    (see ``headrace.govern.checkpoint``). One pipeline works on one home at a time.
    """

    checkpoints: CheckpointStore
    source: Source
    governor: Callable[[], Governor]
    """Returns the governor for the next batch; a changed policy bundle gives a new one."""
    quarantine: QuarantineStore
    lake: Lake
    audit: AuditLog
    prices: RecordedPrices
    others: OtherHomes
    waiting: WaitingCases | None = None
    """The quarantine cases that go on by themselves; without, people release every case."""
    awaited: AwaitedPeople | None = None
    """Whom stored calls turned out to be of, while the consent service does not answer about them."""

    @_retryable()
    def run_batch(self) -> BatchReport | None:
        """Carry the next batch; return None when the spool has nothing finished to take.

        Raises:
            RetryableError: it could not be written; nothing was lost, the next call tries again.
        """
        self._hear_others()
        done = self.checkpoints.load()
        batch, number = self.source.take(done), done.batch + 1
        if not batch.records:
            self.settle()
            return None
        assembly = self.source.place(batch, done)
        # One lease from "is it stored already?" to the commit: an erasure in between would take
        # away the messages that these steps are going to name.
        with self.lake.lease():
            governor = self.governor()
            fresh = self.source.without_stored(assembly, self.lake.known_content())
            fresh = self.quarantine.notes.put_to(fresh)
            governed = governor.judge(fresh, is_on_hold=self._holds(governor.legal_holds))
            self._keep_back(batch, fresh, governed)
            self.checkpoints.announce(number, batch.cursor.to_json())
            self.lake.append(governed, app_id=done.application, version=number)
            governor.stored(governed)
            self._remember(governed)
        # Before the checkpoint: a crash notes twice, never not at all.
        self._note(number, batch, governed)
        self.checkpoints.complete(number, self.source.due(done))
        self.quarantine.notes.settle(fresh, governed)
        self.source.release()
        return BatchReport.of(number, batch, governed)

    def _decide_on_answered(self) -> None:
        """Decide again on stored calls of whose users the consent service answers by now.

        A crash on the way does it twice, to the same end.
        """
        told = [] if self.awaited is None else self.awaited.answered()
        if self.awaited is None or not told:
            return
        with self.lake.lease():
            rows = self.governor().told(told)
            self.lake.append_rows("governance", rows)
        if rows:
            self.audit.append(
                actor=GOVERNOR,
                action="decisions.made",
                subject=",".join(sorted({row.policy_hash for row in rows})),
                detail={"decisions": dict(Counter(row.decision for row in rows))},
            )
        self.awaited.forget((one.tenant_id, one.step_id) for one in told)

    def settle(self) -> None:
        """Write the open conversations, so that the spool lets go of all that is in the lake.

        A batch without records does so; call it when no further one will be asked for.

        Raises:
            RetryableError: they could not be written; nothing was lost.
        """
        done = self.checkpoints.load()
        if done.trail:
            self.checkpoints.complete(done.batch, self.source.remembered(done))
            self.source.release()

    @_retryable()
    def tidy(self, quarantine_days: float | None) -> None:
        """Let go of what quarantine has kept long enough, and of closed segments that are all governed.

        What a legal hold of this home or another one is about stays in quarantine; all of it without days.

        Raises:
            RetryableError: a file could not be written; the next call tries again.
        """
        self.source.release()
        if quarantine_days is None:
            return
        holds = (*self.governor().legal_holds, *self.others.legal_holds())
        self.quarantine.expire(
            quarantine_days, is_held=lambda exchange: holds_exchange(holds, exchange)
        )

    def _hear_others(self) -> None:
        """Let answered cases go on, and carry out what other homes erased: no row is made with a key that is gone."""
        if self.waiting is not None:
            self.waiting.go_on()
        self.others.look(self.governor().legal_holds)
        self._decide_on_answered()

    def _holds(self, in_force: Sequence[LegalHold]) -> Callable[[Exchange], bool]:
        """Return what tells whether a legal hold of this home or another one keeps a held exchange."""

        @cache
        def others() -> Sequence[LegalHold] | None:
            try:
                return self.others.legal_holds()
            except RetryableError:  # of a home that never told its holds, any may be about it
                return None

        def is_on_hold(exchange: Exchange) -> bool:
            holds = others()
            return holds is None or holds_exchange((*in_force, *holds), exchange)

        return is_on_hold

    def _keep_back(self, batch: SpoolBatch, assembly: Assembly, governed: GovernedBatch) -> None:
        """Keep, before the commit, what is held back, and the ids of people about whom there is no answer yet."""
        self.quarantine.keep(_held_back(batch, assembly, governed))
        self.quarantine.notes.keep(assembly, governed, self.quarantine.names)
        if self.awaited is not None:
            self.awaited.keep(governed.awaited)

    def _remember(self, governed: GovernedBatch) -> None:
        """Note which cases wait for an answer, and the prices of the models that were asked."""
        if self.awaited is not None:
            self.awaited.forget(governed.answered)
        if self.waiting is not None:
            self.waiting.note(governed.quarantine)
        self.prices.record(
            (step.tenant_id, step.model_served) for step in governed.steps if step.model_served
        )

    def _note(self, number: int, batch: SpoolBatch, governed: GovernedBatch) -> None:
        """Write the decisions of a batch into the audit log: counts, the policy's hash, what is left out."""
        if left_out := _without_folder(batch):
            self.audit.append(
                actor=GOVERNOR,
                action="records.without_folder",
                subject=str(number),
                detail={"by_key": dict(left_out)},
            )
        if not (governed.exchanges or governed.governance or governed.signals):
            return
        self.audit.append(
            actor=GOVERNOR,
            action="decisions.made",
            subject=",".join(sorted({row.policy_hash for row in governed.exchanges})),
            detail={
                "batch": number,
                "exchanges": dict(Counter(row.disposition for row in governed.exchanges)),
                "decisions": dict(Counter(row.decision for row in governed.governance)),
                "quarantine": dict(Counter(row.reason for row in governed.quarantine)),
                "signals": len(governed.signals),
            },
        )


def _without_folder(batch: SpoolBatch) -> Counter[str]:
    """Return how many records have a tenant whose name no folder of the lake can have, by client key.

    Such keys were made before their names were refused; `headrace doctor` names them.
    """
    return Counter(
        one.client.key_id for one in batch.records if not has_folder(one.client.tenant_id)
    )


def _held_back(batch: SpoolBatch, assembly: Assembly, governed: GovernedBatch) -> list[Exchange]:
    """Return the exchanges that go to quarantine: once governed, the spool lets go of them.

    What another exchange brought to one is kept with it: a release brings it alone.
    """
    held = {row.part_of or row.exchange_id for row in governed.quarantine}
    exchanges = [one for one in batch.records if isinstance(one, Exchange)] if held else []
    calls = {one.call.exchange.exchange_id: one.call for one in assembly.placed} if held else {}
    return [
        with_answer(one, calls[one.exchange_id]) if one.exchange_id in calls else one
        for one in exchanges
        if one.exchange_id in held
    ]
