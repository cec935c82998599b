"""How far governance is behind the gateway."""

from headrace.app.home import Home
from headrace.app.installation import spool_reader
from headrace.app.master_key import Secrets
from headrace.app.settings import Settings
from headrace.govern.checkpoint import CheckpointStore
from proxy.spool import Cursor, SpoolLag


def spool_lag(settings: Settings, home: Home, secrets: Secrets) -> SpoolLag:
    """Return what the gateway has captured and governance has not yet carried into the lake."""
    reader = spool_reader(settings, home, secrets)
    return reader.lag(Cursor.from_json(CheckpointStore(home.state).load().cursor))
