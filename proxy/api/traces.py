"""``POST /v1/traces``: trace exports of instrumented agents (OTLP/HTTP), sealed and not looked into."""

import json

from proxy.api.documents import MAX_DOCUMENT_BYTES, document_record
from proxy.clients.credentials import Fingerprints, RawFields
from proxy.heads import value_of
from proxy.recording.recorder import Recorder
from proxy.responses import LocalReply, Reason, status_of
from proxy.spool import SpoolUnavailableError
from proxy.telemetry.counters import Counters
from trajectory.exchange import ClientIdentity
from trajectory.telemetry.calls import MODE, TRACES_PATH
from trajectory.telemetry.spans import JSON, PROTOBUF

_INVALID_ARGUMENT = 3
_UNAVAILABLE = 14


class Traces:
    """Takes exports; the client hears of success when its export is on the disk."""

    def __init__(
        self, recorder: Recorder | None, counters: Counters, fingerprints: Fingerprints
    ) -> None:
        self._recorder = recorder
        self._counters = counters
        self._fingerprints = fingerprints

    def at_head(self, fields: RawFields, length: int, *, chunked: bool) -> LocalReply | None:
        """Return the answer to an export that cannot be taken, by its head."""
        kind = _kind(fields)
        if kind not in (PROTOBUF, JSON):
            return _failure(JSON, 415, _INVALID_ARGUMENT, f"send {PROTOBUF} or {JSON}")
        if chunked:
            text = "send Content-Length, not chunks: switch the exporter's compression off"
            return _failure(kind, 411, _INVALID_ARGUMENT, text)
        if length > MAX_DOCUMENT_BYTES:
            text = f"an export may have {MAX_DOCUMENT_BYTES} bytes at most; send smaller batches"
            return _failure(kind, 413, _INVALID_ARGUMENT, text)
        return None

    async def take(self, client: ClientIdentity, fields: RawFields, body: bytes) -> LocalReply:
        """Seal one export and return the answer to it."""
        kind = _kind(fields)
        if self._recorder is None:
            return _failure(kind, 404, _INVALID_ARGUMENT, "this gateway captures nothing")
        headers = tuple(self._fingerprints.headers(fields))
        try:
            self._recorder.spool.append(
                *document_record(client, mode=MODE, path=TRACES_PATH, headers=headers, body=body)
            )
            await self._recorder.spool.synced()
        except SpoolUnavailableError:
            self._counters.uncaptured["traces"] += 1
            text = "the spool has no room now; try again"
            return _failure(kind, status_of(Reason.SPOOL_FULL), _UNAVAILABLE, text)
        self._counters.exchanges[MODE, MODE, "complete"] += 1
        self._counters.request_bytes += len(body)
        return _answer(kind, 200, b"{}" if kind == JSON else b"")


def _kind(fields: RawFields) -> str:
    told = (value_of(fields, b"content-type") or b"").decode("latin-1")
    return told.partition(";")[0].strip().lower()


def _failure(kind: str, status: int, code: int, text: str) -> LocalReply:
    """Return a ``google.rpc.Status`` in the client's encoding, as OTLP asks for."""
    if kind == JSON:
        return _answer(kind, status, json.dumps({"code": code, "message": text}).encode())
    message = text.encode()
    return _answer(kind, status, bytes([0x08, code, 0x12]) + _varint(len(message)) + message)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _answer(kind: str, status: int, body: bytes) -> LocalReply:
    headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
    if status == status_of(Reason.SPOOL_FULL):
        headers.append((b"retry-after", b"1"))
    return LocalReply(status, tuple(headers), body)


__all__ = ["Traces"]
