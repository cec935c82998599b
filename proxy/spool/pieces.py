"""Pieces: the records of one exchange laid one behind the other, so that one frame seals them all.

Each function returns what stands before a record's content: the piece's head and the record's own.
The content follows as it came, uncopied until all parts are joined. What comes out is what
:func:`proxy.spool.records.bundle` makes of the same records.
"""

import struct

from proxy.spool.records import RECORD_HEADER_BYTES, RecordKind
from trajectory.exchange import ExchangeOutcome

_PIECE = struct.Struct(">BI")
_REQUEST_CHUNK = struct.Struct(">BI16sI")
_RESPONSE_CHUNK = struct.Struct(">BI16sId")
_RESPONSE_HEAD = struct.Struct(">BI16sIdH")
_END = struct.Struct(">BI16sIdB")
_OUTCOMES = {outcome: number for number, outcome in enumerate(ExchangeOutcome)}
# Plain numbers: looking up an enum's member costs more than packing it.
_HEAD_KIND = int(RecordKind.REQUEST_HEAD)
_REQUEST_KIND = int(RecordKind.REQUEST_CHUNK)
_ANSWER_KIND = int(RecordKind.RESPONSE_HEAD)
_RESPONSE_KIND = int(RecordKind.RESPONSE_CHUNK)
_END_KIND = int(RecordKind.END)


def request_head(size: int) -> bytes:
    """Return what stands before a whole REQUEST_HEAD record."""
    return _PIECE.pack(_HEAD_KIND, size)


def request_chunk(exchange: bytes, sequence: int, size: int) -> bytes:
    """Return what stands before a piece of the request's body."""
    return _REQUEST_CHUNK.pack(_REQUEST_KIND, RECORD_HEADER_BYTES + size, exchange, sequence)


def response_head(exchange: bytes, sequence: int, at: float, status: int, size: int) -> bytes:
    """Return what stands before the block of the response's headers."""
    length = RECORD_HEADER_BYTES + 10 + size
    return _RESPONSE_HEAD.pack(_ANSWER_KIND, length, exchange, sequence, at, status)


def response_chunk(exchange: bytes, sequence: int, at: float, size: int) -> bytes:
    """Return what stands before a piece of the response's body."""
    length = RECORD_HEADER_BYTES + 8 + size
    return _RESPONSE_CHUNK.pack(_RESPONSE_KIND, length, exchange, sequence, at)


def end(exchange: bytes, sequence: int, at: float, outcome: ExchangeOutcome, size: int) -> bytes:
    """Return what stands before the note of the END record."""
    length = RECORD_HEADER_BYTES + 9 + size
    return _END.pack(_END_KIND, length, exchange, sequence, at, _OUTCOMES[outcome])
