"""Exchanges and the records that they are in the spool, both ways."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

from proxy.spool.records import (
    END,
    HEAD,
    LENGTH,
    OUTCOMES,
    PIECE,
    RECORD_HEADER_BYTES,
    RESPONSE,
    TIME,
    RecordKind,
    end,
    pack_origin,
    request_chunk,
    request_head,
    response_chunk,
    response_head,
)
from trajectory.exchange import (
    ClientIdentity,
    Exchange,
    ExchangeOutcome,
    Feedback,
    Headers,
    HttpRequest,
    HttpResponse,
    SpoolPosition,
)

_CHUNK_BYTES = 256 * 1024


def exchange_records(exchange: Exchange) -> list[tuple[int, bytes]]:
    """Return kind and bytes of the records that an exchange is, its times as they were."""
    name = bytes.fromhex(exchange.exchange_id)
    request, response = exchange.request, exchange.response
    origin = pack_origin(
        exchange.client,
        route=exchange.route,
        mode=exchange.mode,
        upstream=exchange.upstream,
        served=exchange.served,
        shadow_of=exchange.shadow_of,
        artifacts=exchange.artifacts,
        subjects=exchange.subjects,
        released_of=exchange.released_of,
        released_calls=exchange.released_calls,
    )
    head = request_head(
        name,
        exchange.started_at.timestamp(),
        origin=origin,
        method=_raw(request.method),
        path=_raw(request.path),
        query=_raw(request.query),
        headers=_raw_headers(request.headers),
    )
    found: list[tuple[int, bytes]] = [(RecordKind.REQUEST_HEAD, head)]
    for data in _chunks(request.body):
        found.append((RecordKind.REQUEST_CHUNK, request_chunk(name, len(found), data)))
    if response is not None:
        at = (exchange.first_byte_at or exchange.started_at).timestamp()
        fields = _raw_headers(response.headers)
        head = response_head(name, len(found), at=at, status=response.status, headers=fields)
        found.append((RecordKind.RESPONSE_HEAD, head))
        for data in _chunks(response.body):
            chunk = response_chunk(name, len(found), at=at, data=data)
            found.append((RecordKind.RESPONSE_CHUNK, chunk))
    ended = (exchange.ended_at or exchange.started_at).timestamp()
    last = end(name, len(found), at=ended, outcome=exchange.outcome, note=exchange.capture_note)
    return [*found, (RecordKind.END, last)]


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _raw_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(_raw(name), _raw(value)) for name, value in headers]


def _chunks(body: bytes) -> Iterator[bytes]:
    return (body[at : at + _CHUNK_BYTES] for at in range(0, len(body), _CHUNK_BYTES))


def _unpack(data: bytes, at: int) -> list[bytes]:
    parts = []
    while at < len(data):
        (length,) = LENGTH.unpack_from(data, at)
        at += 4
        if at + length > len(data):
            raise ValueError("a field is longer than its record")
        parts.append(data[at : at + length])
        at += length
    return parts


def _headers(block: bytes) -> Headers:
    if not block:
        return ()
    texts = block.decode("utf-8", "surrogateescape").split("\n")
    return tuple((name.lower(), value) for name, value in zip(texts[::2], texts[1::2], strict=True))


def unbundle(kind: int, record: bytes) -> list[tuple[int, bytes]]:
    """Return the records that a frame holds.

    Raises:
        ValueError: the bundle is not what its kind promises.
    """
    if kind not in (RecordKind.PART, RecordKind.LAST_PART):
        return [(kind, record)]
    pieces, at = [], 0
    while at < len(record):
        if at + PIECE.size > len(record):
            raise ValueError("a bundle is cut off")
        inner, length = PIECE.unpack_from(record, at)
        at += PIECE.size
        if at + length > len(record):
            raise ValueError("a bundle is cut off")
        pieces.append((inner, record[at : at + length]))
        at += length
    return pieces


def _when(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@dataclass(frozen=True, slots=True)
class _Origin:
    """What :func:`pack_origin` packed."""

    client: ClientIdentity
    route: str
    mode: str
    upstream: str
    served: str
    shadow_of: str
    artifacts: tuple[str, ...]
    subjects: tuple[str, ...] | None
    released_of: str
    released_calls: tuple[tuple[str, str], ...]


@lru_cache(maxsize=1024)
def _origin(packed: bytes) -> _Origin:
    tenant, app, environment, key_id, purposes, route, mode, upstream, *rest = json.loads(packed)
    client = ClientIdentity(tenant, app, environment, key_id, tuple(purposes))
    served, shadow_of, *added = rest or ("", "")
    artifacts = tuple(added[0]) if added else ()
    subjects = None if len(added) < 2 or added[1] is None else tuple(added[1])
    released_of = added[2] if len(added) > 2 else ""
    released_calls = tuple((first, now) for first, now in added[3]) if len(added) > 3 else ()
    return _Origin(
        client=client,
        route=route,
        mode=mode,
        upstream=upstream,
        served=served,
        shadow_of=shadow_of,
        artifacts=artifacts,
        subjects=subjects,
        released_of=released_of,
        released_calls=released_calls,
    )


@dataclass(slots=True)
class OpenExchange:
    """An exchange whose records are being gathered; ``whole`` falls when one is missing."""

    position: SpoolPosition
    records: list[tuple[int, bytes]] = field(default_factory=list)
    size: int = 0
    whole: bool = True
    last_at: float = 0.0

    def add(self, kind: int, record: bytes) -> None:
        """Add the next record; after a hole nothing more is kept."""
        (sequence,) = LENGTH.unpack_from(record, 16)
        if sequence != len(self.records):
            self.whole = False
        if self.whole:
            self.records.append((kind, record))
            self.size += len(record)
        if kind in (RecordKind.REQUEST_HEAD, RecordKind.RESPONSE_HEAD, RecordKind.RESPONSE_CHUNK):
            (self.last_at,) = TIME.unpack_from(record, RECORD_HEADER_BYTES)

    def build(self, last: bytes | None) -> Exchange:
        """Return the exchange; ``last`` is its END record, None when the writer died before it.

        Raises:
            ValueError: a record does not hold what its kind promises.
        """
        try:
            return self._build(last)
        except (struct.error, LookupError, TypeError) as error:
            raise ValueError(f"malformed record: {type(error).__name__}") from None

    def _build(self, last: bytes | None) -> Exchange:
        head = self.records[0][1]
        started, *lengths = HEAD.unpack_from(head, RECORD_HEADER_BYTES)
        at = RECORD_HEADER_BYTES + HEAD.size
        parts = []
        for length in lengths:
            parts.append(head[at : at + length])
            at += length
        packed, method, path, query = parts
        origin = _origin(packed)
        ended, outcome, note = None, ExchangeOutcome.LOST_END, ""
        if last is not None:
            if LENGTH.unpack_from(last, 16)[0] != len(self.records):
                self.whole = False
            seconds, number = END.unpack_from(last, RECORD_HEADER_BYTES)
            note = last[RECORD_HEADER_BYTES + 9 :].decode()
            ended = _when(seconds)
            if self.whole:
                outcome = OUTCOMES[number]
        first_byte, response = self._response()
        return Exchange(
            exchange_id=head[:16].hex(),
            client=origin.client,
            route=origin.route,
            mode=origin.mode,
            upstream=origin.upstream,
            started_at=_when(started),
            first_byte_at=first_byte,
            ended_at=ended,
            request=HttpRequest(
                method=method.decode("utf-8", "surrogateescape"),
                path=path.decode("utf-8", "surrogateescape"),
                query=query.decode("utf-8", "surrogateescape"),
                headers=_headers(head[at:]),
                body=self._body(RecordKind.REQUEST_CHUNK, RECORD_HEADER_BYTES),
            ),
            response=response,
            outcome=outcome,
            position=self.position,
            capture_note=note or ("" if self.whole else "records-missing"),
            served=origin.served,
            shadow_of=origin.shadow_of,
            artifacts=origin.artifacts,
            subjects=origin.subjects,
            released_of=origin.released_of,
            released_calls=origin.released_calls,
        )

    def _response(self) -> tuple[datetime | None, HttpResponse | None]:
        heads = [record for kind, record in self.records if kind == RecordKind.RESPONSE_HEAD]
        if not heads:
            return None, None
        at, status = RESPONSE.unpack_from(heads[0], RECORD_HEADER_BYTES)
        headers = _headers(heads[0][RECORD_HEADER_BYTES + RESPONSE.size :])
        for kind, record in self.records:
            if kind == RecordKind.RESPONSE_CHUNK:
                (at,) = TIME.unpack_from(record, RECORD_HEADER_BYTES)
                break
        body = self._body(RecordKind.RESPONSE_CHUNK, RECORD_HEADER_BYTES + 8)
        return _when(at), HttpResponse(status, headers, body)

    def _body(self, wanted: RecordKind, skip: int) -> bytes:
        return b"".join(record[skip:] for kind, record in self.records if kind == wanted)


def read_feedback(record: bytes, position: SpoolPosition) -> Feedback:
    """Return the feedback of a FEEDBACK record.

    Raises:
        ValueError: the record does not hold what its kind promises.
    """
    try:
        (received,) = TIME.unpack_from(record, RECORD_HEADER_BYTES)
        origin, name, target_kind, target_id, body = _unpack(record, RECORD_HEADER_BYTES + 8)
        client = _origin(origin).client
        return Feedback(
            feedback_id=name.decode("utf-8", "surrogatepass"),
            client=client,
            received_at=_when(received),
            target_kind=target_kind.decode(),
            target_id=target_id.decode("utf-8", "surrogatepass"),
            body=json.loads(body),
            position=position,
        )
    except (struct.error, TypeError) as error:
        raise ValueError(f"malformed record: {type(error).__name__}") from None
