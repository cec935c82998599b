"""Records: what one frame holds, and how the records of one exchange become an Exchange."""

import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from functools import lru_cache

from trajectory.canonical import JsonObject
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

type RawHeaders = Iterable[tuple[bytes, bytes]]
type HeaderBlock = bytes
"""Headers as :func:`pack_headers` packs them."""

RECORD_HEADER_BYTES = 20
_RECORD = struct.Struct(">16sI")
_TIME = struct.Struct(">d")
_LENGTH = struct.Struct(">I")
_RESPONSE = struct.Struct(">dH")
_END = struct.Struct(">dB")
_HEAD = struct.Struct(">dHHII")
_PIECE = struct.Struct(">BI")
_OUTCOMES = tuple(ExchangeOutcome)


class RecordKind(IntEnum):
    """What a record is; stands in clear in the frame's head, so that lag can be counted cheaply."""

    REQUEST_HEAD = 1
    REQUEST_CHUNK = 2
    RESPONSE_HEAD = 3
    RESPONSE_CHUNK = 4
    END = 5
    FEEDBACK = 6
    PART = 7
    """Several records of one exchange in one frame."""
    LAST_PART = 8
    """The same, its END among them."""


def _pack(parts: Iterable[bytes]) -> bytes:
    return b"".join(piece for part in parts for piece in (_LENGTH.pack(len(part)), part))


def _unpack(data: bytes, at: int) -> list[bytes]:
    parts = []
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += 4
        if at + length > len(data):
            raise ValueError("a field is longer than its record")
        parts.append(data[at : at + length])
        at += length
    return parts


def pack_headers(headers: RawHeaders | HeaderBlock) -> HeaderBlock:
    """Return headers as one block of lines; a line break within one becomes a space."""
    if isinstance(headers, bytes):
        return headers
    return pack_lines([piece for header in headers for piece in header])


def pack_lines(flat: list[bytes]) -> HeaderBlock:
    """Return names and values, in turn, as one block of lines."""
    block = b"\n".join(flat)
    if block.count(b"\n") >= len(flat) > 0:
        block = b"\n".join(piece.replace(b"\n", b" ") for piece in flat)
    return block


def _headers(block: bytes) -> Headers:
    if not block:
        return ()
    texts = block.decode("utf-8", "surrogateescape").split("\n")
    return tuple((name.lower(), value) for name, value in zip(texts[::2], texts[1::2], strict=True))


def bundle(pieces: Sequence[tuple[int, bytes]]) -> tuple[int, bytes]:
    """Return several records of one exchange as one, with its kind: sealing costs per frame."""
    if len(pieces) == 1:
        return pieces[0]
    parts = []
    for kind, record in pieces:
        parts.append(_PIECE.pack(kind, len(record)))
        parts.append(record)
    last = pieces[-1][0] == RecordKind.END
    return RecordKind.LAST_PART if last else RecordKind.PART, b"".join(parts)


def unbundle(kind: int, record: bytes) -> list[tuple[int, bytes]]:
    """Return the records that a frame holds.

    Raises:
        ValueError: the bundle is not what its kind promises.
    """
    if kind not in (RecordKind.PART, RecordKind.LAST_PART):
        return [(kind, record)]
    pieces, at = [], 0
    while at < len(record):
        if at + _PIECE.size > len(record):
            raise ValueError("a bundle is cut off")
        inner, length = _PIECE.unpack_from(record, at)
        at += _PIECE.size
        if at + length > len(record):
            raise ValueError("a bundle is cut off")
        pieces.append((inner, record[at : at + length]))
        at += length
    return pieces


def pack_origin(
    client: ClientIdentity,
    *,
    route: str,
    mode: str,
    upstream: str,
    served: str = "",
    shadow_of: str = "",
) -> bytes:
    """Return the part of a request head that is the same for one key, route, mode and version."""
    return json.dumps(
        [
            client.tenant_id,
            client.app_id,
            client.environment,
            client.key_id,
            list(client.purposes),
            route,
            mode,
            upstream,
            *((served, shadow_of) if served else ()),
        ]
    ).encode()


def request_head(
    exchange: bytes,
    started_at: float,
    *,
    origin: bytes,
    method: bytes,
    path: bytes,
    query: bytes,
    headers: RawHeaders | HeaderBlock,
) -> bytes:
    """Return the record that begins an exchange; it has sequence number 0."""
    lengths = _HEAD.pack(started_at, len(origin), len(method), len(path), len(query))
    head = _RECORD.pack(exchange, 0)
    return b"".join((head, lengths, origin, method, path, query, pack_headers(headers)))


def renewed_head(head: bytes, exchange: bytes, started_at: float) -> bytes:
    """Return a request head for another exchange that begins later under the same head."""
    renewed = bytearray(head)
    _RECORD.pack_into(renewed, 0, exchange, 0)
    _TIME.pack_into(renewed, RECORD_HEADER_BYTES, started_at)
    return bytes(renewed)


def request_chunk(exchange: bytes, sequence: int, data: bytes) -> bytes:
    """Return the record of a piece of the request's body."""
    return _RECORD.pack(exchange, sequence) + data


def response_head(
    exchange: bytes, sequence: int, *, at: float, status: int, headers: RawHeaders | HeaderBlock
) -> bytes:
    """Return the record of the response's head."""
    return _RECORD.pack(exchange, sequence) + _RESPONSE.pack(at, status) + pack_headers(headers)


def response_chunk(exchange: bytes, sequence: int, *, at: float, data: bytes) -> bytes:
    """Return the record of a piece of the response's body."""
    return _RECORD.pack(exchange, sequence) + _TIME.pack(at) + data


def end(
    exchange: bytes,
    sequence: int,
    *,
    at: float,
    outcome: ExchangeOutcome,
    note: str = "",
) -> bytes:
    """Return the record that ends an exchange; ``note`` says why a body is not whole."""
    packed = _END.pack(at, _OUTCOMES.index(outcome))
    return _RECORD.pack(exchange, sequence) + packed + note.encode()


def feedback(
    exchange: bytes,
    client: ClientIdentity,
    *,
    received_at: float,
    feedback_id: str,
    target_kind: str,
    target_id: str,
    body: JsonObject,
) -> bytes:
    """Return the record of one piece of feedback."""
    origin = pack_origin(client, route="", mode="", upstream="")
    parts = (
        origin,
        feedback_id.encode("utf-8", "surrogatepass"),
        target_kind.encode(),
        target_id.encode("utf-8", "surrogatepass"),
        json.dumps(body).encode(),
    )
    return _RECORD.pack(exchange, 0) + _TIME.pack(received_at) + _pack(parts)


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


@lru_cache(maxsize=1024)
def _origin(packed: bytes) -> _Origin:
    tenant, app, environment, key_id, purposes, route, mode, upstream, *rest = json.loads(packed)
    client = ClientIdentity(tenant, app, environment, key_id, tuple(purposes))
    served, shadow_of = rest or ("", "")
    return _Origin(client, route, mode, upstream, served, shadow_of)


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
        (sequence,) = _LENGTH.unpack_from(record, 16)
        if sequence != len(self.records):
            self.whole = False
        if self.whole:
            self.records.append((kind, record))
            self.size += len(record)
        if kind in (RecordKind.REQUEST_HEAD, RecordKind.RESPONSE_HEAD, RecordKind.RESPONSE_CHUNK):
            (self.last_at,) = _TIME.unpack_from(record, RECORD_HEADER_BYTES)

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
        started, *lengths = _HEAD.unpack_from(head, RECORD_HEADER_BYTES)
        at = RECORD_HEADER_BYTES + _HEAD.size
        parts = []
        for length in lengths:
            parts.append(head[at : at + length])
            at += length
        packed, method, path, query = parts
        origin = _origin(packed)
        ended, outcome, note = None, ExchangeOutcome.LOST_END, ""
        if last is not None:
            if _LENGTH.unpack_from(last, 16)[0] != len(self.records):
                self.whole = False
            seconds, number = _END.unpack_from(last, RECORD_HEADER_BYTES)
            note = last[RECORD_HEADER_BYTES + 9 :].decode()
            ended = _when(seconds)
            if self.whole:
                outcome = _OUTCOMES[number]
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
        )

    def _response(self) -> tuple[datetime | None, HttpResponse | None]:
        heads = [record for kind, record in self.records if kind == RecordKind.RESPONSE_HEAD]
        if not heads:
            return None, None
        at, status = _RESPONSE.unpack_from(heads[0], RECORD_HEADER_BYTES)
        headers = _headers(heads[0][RECORD_HEADER_BYTES + _RESPONSE.size :])
        for kind, record in self.records:
            if kind == RecordKind.RESPONSE_CHUNK:
                (at,) = _TIME.unpack_from(record, RECORD_HEADER_BYTES)
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
        (received,) = _TIME.unpack_from(record, RECORD_HEADER_BYTES)
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
