"""Pieces: the records of one exchange laid one behind the other, so that one frame seals them all.

Each function packs what stands before a record's content: the piece's head and the record's own.
They are the packers of structs, because they are called several times for each exchange; the first
argument is the length of the record, which is ``…_BYTES`` more than its content's. The content
follows as it came, uncopied until all parts are joined. What comes out is what
:func:`proxy.spool.records.bundle` makes of the same records.
"""

import struct
from functools import partial

from proxy.spool.records import RECORD_HEADER_BYTES, RecordKind
from trajectory.exchange import ExchangeOutcome

REQUEST_CHUNK_BYTES = RECORD_HEADER_BYTES
RESPONSE_HEAD_BYTES = RECORD_HEADER_BYTES + 10
RESPONSE_CHUNK_BYTES = RECORD_HEADER_BYTES + 8
END_BYTES = RECORD_HEADER_BYTES + 9
OUTCOMES = {outcome: number for number, outcome in enumerate(ExchangeOutcome)}

# Plain numbers: looking up an enum's member costs more than packing it.
request_head = partial(struct.Struct(">BI").pack, int(RecordKind.REQUEST_HEAD))
"""Stands before a whole REQUEST_HEAD record: its length."""
request_chunk = partial(struct.Struct(">BI16sI").pack, int(RecordKind.REQUEST_CHUNK))
"""Stands before a piece of the request's body: length, exchange, sequence."""
response_head = partial(struct.Struct(">BI16sIdH").pack, int(RecordKind.RESPONSE_HEAD))
"""Stands before the block of the response's headers: length, exchange, sequence, time, status."""
response_chunk = partial(struct.Struct(">BI16sId").pack, int(RecordKind.RESPONSE_CHUNK))
"""Stands before a piece of the response's body: length, exchange, sequence, time."""
end = partial(struct.Struct(">BI16sIdB").pack, int(RecordKind.END))
"""Stands before the note of the END record: length, exchange, sequence, time, outcome's number."""
