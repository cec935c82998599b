"""How far governance is behind the gateway."""

from headrace.checkpoint import CheckpointStore
from headrace.home import Home
from headrace.installation import gateway_config
from headrace.master_key import Secrets
from headrace.settings import Settings
from proxy.spool import Cursor, SpoolLag, SpoolReader


def spool_lag(settings: Settings, home: Home, secrets: Secrets) -> SpoolLag:
    """Return what the gateway has captured and governance has not yet carried into the lake."""
    reader = SpoolReader(gateway_config(settings, home).spool.directory, secrets.derive(b"spool"))
    return reader.lag(Cursor.from_json(CheckpointStore(home.state).load().cursor))
