"""Records: what one frame holds; :mod:`proxy.spool.exchanges` reads them back."""

import json
import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum

from trajectory.canonical import JsonObject
from trajectory.exchange import ClientIdentity, ExchangeOutcome

type RawHeaders = Iterable[tuple[bytes, bytes]]
type HeaderBlock = bytes
"""Headers as :func:`pack_headers` packs them."""

RECORD_HEADER_BYTES = 20
# What stands at the beginning of each kind of record, and of a piece of a bundle.
RECORD = struct.Struct(">16sI")
TIME = struct.Struct(">d")
LENGTH = struct.Struct(">I")
RESPONSE = struct.Struct(">dH")
BEGIN = struct.Struct(">16sId")
BEGIN_BYTES = BEGIN.size
"""What each exchange has for itself at the beginning of its head."""
END = struct.Struct(">dB")
HEAD = struct.Struct(">dHHII")
LENGTHS = struct.Struct(">HHII")
"""What HEAD has behind its time: the length of the origin comes first."""
PIECE = struct.Struct(">BI")
OUTCOMES = tuple(ExchangeOutcome)


class RecordKind(IntEnum):
    """Kind of a record. The frame's head holds it in clear, so counting lag is cheap."""

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
    return b"".join(piece for part in parts for piece in (LENGTH.pack(len(part)), part))


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


def bundle(pieces: Sequence[tuple[int, bytes]]) -> tuple[int, bytes]:
    """Return several records of one exchange as one, with its kind: sealing costs per frame."""
    if len(pieces) == 1:
        return pieces[0]
    parts = []
    for kind, record in pieces:
        parts.append(PIECE.pack(kind, len(record)))
        parts.append(record)
    last = pieces[-1][0] == RecordKind.END
    return RecordKind.LAST_PART if last else RecordKind.PART, b"".join(parts)


def pack_origin(
    client: ClientIdentity,
    *,
    route: str,
    mode: str,
    upstream: str,
    served: str = "",
    shadow_of: str = "",
    artifacts: Sequence[str] = (),
    subjects: Sequence[str] | None = None,
    released_of: str = "",
    released_calls: Sequence[tuple[str, str]] = (),
) -> bytes:
    """Return the part of a request head that is the same for one key, route, mode and version."""
    named = subjects is not None or bool(released_of)
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
            *((served, shadow_of) if served or artifacts or named else ()),
            *((list(artifacts),) if artifacts or named else ()),
            *((None if subjects is None else list(subjects),) if named else ()),
            *((released_of,) if released_of else ()),
            *(([*map(list, released_calls)],) if released_calls else ()),
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
    lengths = HEAD.pack(started_at, len(origin), len(method), len(path), len(query))
    head = RECORD.pack(exchange, 0)
    return b"".join((head, lengths, origin, method, path, query, pack_headers(headers)))


def repeated_head(exchange: bytes, started_at: float, rest: bytes) -> bytes:
    """Return a request head that says what another said; ``rest`` is that from BEGIN_BYTES on."""
    return BEGIN.pack(exchange, 0, started_at) + rest


def with_origin(rest: bytes, origin: bytes) -> bytes:
    """Return what a request head says from BEGIN_BYTES on, with another origin."""
    old, *others = LENGTHS.unpack_from(rest)
    behind = rest[LENGTHS.size + old :]
    return b"".join((LENGTHS.pack(len(origin), *others), origin, behind))


def renewed_head(head: bytes, exchange: bytes, started_at: float) -> bytes:
    """Return a request head for another exchange that begins later under the same head."""
    renewed = bytearray(head)
    RECORD.pack_into(renewed, 0, exchange, 0)
    TIME.pack_into(renewed, RECORD_HEADER_BYTES, started_at)
    return bytes(renewed)


def request_chunk(exchange: bytes, sequence: int, data: bytes) -> bytes:
    """Return the record of a piece of the request's body."""
    return RECORD.pack(exchange, sequence) + data


def response_head(
    exchange: bytes, sequence: int, *, at: float, status: int, headers: RawHeaders | HeaderBlock
) -> bytes:
    """Return the record of the response's head."""
    return RECORD.pack(exchange, sequence) + RESPONSE.pack(at, status) + pack_headers(headers)


def response_chunk(exchange: bytes, sequence: int, *, at: float, data: bytes) -> bytes:
    """Return the record of a piece of the response's body."""
    return RECORD.pack(exchange, sequence) + TIME.pack(at) + data


def end(
    exchange: bytes,
    sequence: int,
    *,
    at: float,
    outcome: ExchangeOutcome,
    note: str = "",
) -> bytes:
    """Return the record that ends an exchange; ``note`` says why a body is not whole."""
    packed = END.pack(at, OUTCOMES.index(outcome))
    return RECORD.pack(exchange, sequence) + packed + note.encode()


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
    return RECORD.pack(exchange, 0) + TIME.pack(received_at) + _pack(parts)
