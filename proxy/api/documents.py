"""A document handed in whole (a trace export, an imported trajectory) as one sealed exchange.

It stands in a single frame of the spool: it is there whole or not at all.
"""

from datetime import UTC, datetime

from proxy.clients.credentials import RawFields
from proxy.recording.capture import new_exchange_id
from proxy.spool.exchanges import exchange_records
from proxy.spool.frames import MAX_RECORD_BYTES
from proxy.spool.records import bundle
from trajectory.exchange import (
    ClientIdentity,
    Exchange,
    ExchangeOutcome,
    HttpRequest,
    HttpResponse,
    SpoolPosition,
)

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
    now = datetime.now(UTC)
    fields = tuple(
        (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
        for name, value in headers
    )
    exchange = Exchange(
        exchange_id=new_exchange_id().hex(),
        client=client,
        route=mode,
        mode=mode,
        upstream=upstream,
        started_at=now,
        first_byte_at=now,
        ended_at=now,
        request=HttpRequest("POST", path, "", fields, body),
        response=HttpResponse(200, (), b""),
        outcome=ExchangeOutcome.COMPLETE,
        position=SpoolPosition("", 0, 0),
    )
    return bundle(exchange_records(exchange))


__all__ = ["MAX_DOCUMENT_BYTES", "document_record"]
