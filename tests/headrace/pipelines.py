"""A pipeline over a home folder, with a light redactor and the plain form of the quality gate."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from governance.audit import AuditLog
from governance.governor import Governor
from governance.policy import load_bundle
from governance.quality import RowGate
from headrace.govern.checkpoint import CheckpointStore
from headrace.govern.quarantine_store import QuarantineStore
from headrace.govern.shared_lake import Alone
from headrace.govern.source import Source
from headrace.pipeline import Pipeline
from lakehouse.lake import Lake
from lakehouse.price_records import RecordedPrices
from proxy.spool import SpoolReader
from tests.governance.factories import MailRedactor
from tests.proxy.spool.scripts import KEY
from trajectory.errors import RetryableError
from trajectory.prices import load_prices


def pipeline(
    home: Path,
    *,
    spool_key: bytes = KEY,
    batch_records: int = 1000,
    name: str | None = None,
    folder: Path | None = None,
    behind: Callable[[int, int], None] | None = None,
) -> Pipeline:
    """Put a pipeline together; with a name it keeps a copy of its state in the lake.

    The lake is in ``folder``, by default in the home.
    """
    lake = Lake.open(str(folder or home / "lake"))
    state = home / "state"
    state.mkdir(exist_ok=True)
    kept = (
        CheckpointStore(state) if name is None else CheckpointStore(state, lake.notes(), name=name)
    )
    return pipeline_of(
        home,
        lake,
        lake_governor(lake),
        SpoolReader(home / "spool", spool_key),
        kept,
        batch_records=batch_records,
        behind=behind,
    )


def pipeline_of(
    home: Path,
    lake: Lake,
    governor: Governor,
    spool: SpoolReader,
    checkpoints: CheckpointStore,
    *,
    assembly_key: bytes = b"a" * 32,
    batch_records: int = 1000,
    behind: Callable[[int, int], None] | None = None,
) -> Pipeline:
    """Put a pipeline together whose quarantine and audit log are in ``home``."""
    checkpoints.recover(lake, behind)
    source = Source(
        spool, lake.query, checkpoints, assembly_key=assembly_key, batch_records=batch_records
    )
    return Pipeline(
        checkpoints=checkpoints,
        source=source,
        governor=lambda: governor,
        quarantine=QuarantineStore(home / "quarantine", b"q" * 32),
        lake=lake,
        audit=AuditLog(home / "audit.jsonl", b"l" * 32),
        prices=RecordedPrices(lake, load_prices()),
        others=Alone(),
    )


def lake_governor(lake: Lake) -> Governor:
    """Put a governor of the shipped policies together that knows what the lake holds."""
    bundle = load_bundle()
    return Governor(
        bundle,
        MailRedactor(),
        message_key=b"m" * 32,
        pseudonym_key=b"p" * 32,
        known=lake.known_content(),
        consents=lake.consents(),
        gate=RowGate(bundle.quality.spec),
    )


def refuse(patch: pytest.MonkeyPatch, owner: type, name: str, refused: list[bool]) -> None:
    """Have a method fail at those of its next calls for which ``refused`` says so."""
    method = getattr(owner, name)

    def or_refuse(*given: Any, **named: Any) -> Any:
        if refused and refused.pop(0):
            raise RetryableError("the disk is full")
        return method(*given, **named)

    patch.setattr(owner, name, or_refuse)


def failures(work: Pipeline) -> Iterator[RetryableError]:
    """Carry batches to the end of the spool; yield what failed on the way."""
    while True:
        try:
            if work.run_batch() is None:
                return
        except RetryableError as error:
            yield error
