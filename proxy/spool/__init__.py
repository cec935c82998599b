"""The spool: sealed, append-only segment files between the gateway and everything that learns."""

from proxy.spool.cursor import Cursor, Mark
from proxy.spool.reader import Damage, SpoolBatch, SpoolLag, SpoolReader
from proxy.spool.records import RecordKind
from proxy.spool.states import SpoolUnavailableError
from proxy.spool.writer import SpoolWriter

__all__ = [
    "Cursor",
    "Damage",
    "Mark",
    "RecordKind",
    "SpoolBatch",
    "SpoolLag",
    "SpoolReader",
    "SpoolUnavailableError",
    "SpoolWriter",
]
