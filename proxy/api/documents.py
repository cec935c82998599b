"""A document handed in whole (a trace export, an imported trajectory) as one sealed exchange.

It stands in a single frame of the spool: it is there whole or not at all.
"""

import time

from proxy.capture import new_exchange_id
from proxy.credentials import RawFields
from proxy.spool import RecordKind, records
from proxy.spool.frames import MAX_RECORD_BYTES
from trajectory.exchange import ClientIdentity, ExchangeOutcome

MAX_DOCUMENT_BYTES = MAX_RECORD_BYTES // 2


def document_record(
    client: ClientIdentity,
    *,
    mode: str,
    path: str,
    headers: RawFields,
    body: bytes,
    upstream: str = "",
) -> tuple[int, bytes]:
    """Return kind and bytes of the record; ``headers`` hold no credentials any more.

    Raises:
        ValueError: the body has more than :data:`MAX_DOCUMENT_BYTES`.
    """
    if len(body) > MAX_DOCUMENT_BYTES:
        raise ValueError(f"a document may have {MAX_DOCUMENT_BYTES} bytes at most")
    exchange, now = new_exchange_id(), time.time()
    head = records.request_head(
        exchange,
        started_at=now,
        origin=records.pack_origin(client, route=mode, mode=mode, upstream=upstream),
        method=b"POST",
        path=path.encode(),
        query=b"",
        headers=headers,
    )
    chunk = records.request_chunk(exchange, 1, body)
    answer = records.response_head(exchange, 2, at=now, status=200, headers=())
    end = records.end(exchange, 3, at=now, outcome=ExchangeOutcome.COMPLETE)
    return records.bundle(
        [
            (RecordKind.REQUEST_HEAD, head),
            (RecordKind.REQUEST_CHUNK, chunk),
            (RecordKind.RESPONSE_HEAD, answer),
            (RecordKind.END, end),
        ]
    )


__all__ = ["MAX_DOCUMENT_BYTES", "document_record"]
