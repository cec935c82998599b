"""Governs a home's spool into its lake with the shipped policies, redaction included."""

from pathlib import Path

from governance.governor import Governor
from governance.policy import load_bundle
from governance.quality import RowGate
from governance.redact import build_redactor
from headrace.app.home import Home
from headrace.app.master_key import load_secrets
from headrace.govern.checkpoint import CheckpointStore
from lakehouse.lake import Lake
from proxy.spool import SpoolReader
from tests.headrace.pipelines import pipeline_of
from tests.proxy.gateway_process import SPOOL_KEY

MESSAGE_KEY = b"m" * 32


def govern(home: Path, spool: SpoolReader | None = None) -> Lake:
    """Put what the gateway sealed into the lake; return the lake."""
    lake, bundle = Lake.open(str(home / "lake")), load_bundle()
    key = load_secrets(Home(home).create().secrets, create=True).derive(b"pseudonym")
    governor = Governor(
        bundle,
        build_redactor(bundle.redaction.spec, pseudonym_key=key, base=bundle.path),
        message_key=MESSAGE_KEY,
        pseudonym_key=key,
        known=lake.known_content(),
        consents=lake.consents(),
        gate=RowGate(bundle.quality.spec),
        lineages=lake.lineages(),
    )
    (home / "state").mkdir(exist_ok=True)
    spool = spool or SpoolReader(home / "spool", SPOOL_KEY)
    pipeline = pipeline_of(home, lake, governor, spool, CheckpointStore(home / "state"))
    while pipeline.run_batch() is not None:
        pass
    return lake
