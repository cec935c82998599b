"""A pipeline over a home folder, with a light redactor and the plain form of the quality gate."""

from pathlib import Path

from governance.engine import Governor
from governance.policy import load_bundle
from governance.quality import RowGate
from headrace.checkpoint import CheckpointStore
from headrace.pipeline import Pipeline
from lakehouse.lake import Lake
from proxy.spool import SpoolReader
from tests.governance.building import MailRedactor
from tests.proxy.spool.writing import KEY


def pipeline(home: Path, *, spool_key: bytes = KEY, batch_records: int = 1000) -> Pipeline:
    """Put a pipeline together."""
    lake = Lake.open(str(home / "lake"))
    bundle = load_bundle()
    governor = Governor(
        bundle,
        MailRedactor(),
        message_key=b"m" * 32,
        pseudonym_key=b"p" * 32,
        known=lake.known_content(),
        consents=lake.consents(),
        gate=RowGate(bundle.quality.spec),
    )
    (home / "state").mkdir(exist_ok=True)
    return Pipeline(
        spool=SpoolReader(home / "spool", spool_key),
        lake=lake,
        governor=lambda: governor,
        checkpoints=CheckpointStore(home / "state"),
        assembly_key=b"a" * 32,
        batch_records=batch_records,
    )
