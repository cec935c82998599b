"""What a client hears of a call that was not sent: its protocol's own error, or events while it waits."""

import json
from collections.abc import Mapping

from proxy.clients.credentials import RawFields
from proxy.guard.calls import ReadRequest
from proxy.heads import value_of
from proxy.responses import LocalReply, json_reply
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.errors import Shape, error_body

NOT_SENT_BESIDE = "Headrace: not sent, because another call of this batch was denied."
"""What is told of a call that nothing else stands against."""
_DENIED_CODE = -32001
"""JSON-RPC's range for errors of servers."""
_JSON = b"application/json"
_EVENTS = b"text/event-stream"
_LONGEST = 64 * 1024 * 1024
STREAM_FIELDS: RawFields = (
    (b"content-type", _EVENTS),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
"""Headers of an answer that begins before anybody knows what it says."""


def takes_events(fields: RawFields) -> bool:
    """Tell whether a client takes an answer as a stream of events."""
    return _EVENTS in (value_of(fields, b"accept") or b"").lower()


def denial(read: ReadRequest, texts: Mapping[int, str], shape: Shape) -> LocalReply:
    """Return the answer to a request that is not sent.

    Args:
        read: the request.
        texts: why, by the number of the call in it.
        shape: of errors that are no JSON-RPC.
    """
    if not read.is_rpc:
        text = next(iter(texts.values()), "")
        return json_reply(403, error_body(shape, 403, "denied", text))
    messages = [*_denials(read, texts)]
    if not messages:
        text = next(iter(texts.values()), "")
        return json_reply(400, _error(None, text))
    listed: list[JsonValue] = [*messages]
    return json_reply(200, listed if read.is_batch else messages[0])


def answer_taken(*, is_known: bool) -> LocalReply:
    """Return what a client hears of its answer to a question of the gateway's."""
    if is_known:
        return LocalReply(202, ((b"content-length", b"0"),), b"")
    return json_reply(400, _error(None, "Headrace: this session was not asked that."))


def _denials(read: ReadRequest, texts: Mapping[int, str]) -> list[JsonObject]:
    by_id: dict[str, str] = {}
    for number, call in enumerate(read.calls):
        if number in texts:
            by_id[json.dumps(call.request_id)] = texts[number]
    found: list[JsonObject] = []
    for request_id, method in read.answers:
        text = by_id.get(json.dumps(request_id), NOT_SENT_BESIDE)
        if method == "tools/call":
            content: list[JsonValue] = [{"type": "text", "text": text}]
            result: JsonObject = {"content": content, "isError": True}
            found.append({"jsonrpc": "2.0", "id": request_id, "result": result})
        else:
            found.append(_error(request_id, text))
    return found


def _error(request_id: JsonValue, text: str) -> JsonObject:
    error: JsonObject = {"code": _DENIED_CODE, "message": text}
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


def comment(text: str) -> bytes:
    """Return a comment of a stream of events, which clients pass over."""
    return b": " + text.encode() + b"\n\n"


def message_event(message: JsonValue) -> bytes:
    """Return a message of JSON-RPC as an event."""
    return _event(json.dumps(message).encode())


def progress(token: JsonValue, number: int, text: str) -> bytes:
    """Return the event that tells a client how far its call is."""
    return message_event(progress_message(token, number, text))


def progress_message(token: JsonValue, number: int, text: str) -> JsonObject:
    """Return the notification that tells a client how far its call is."""
    params: JsonObject = {"progressToken": token, "progress": number, "message": text}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def as_events(reply: LocalReply) -> bytes:
    """Return an answer of the gateway's own as events of a stream that has begun."""
    said = json.loads(reply.body) if reply.body else []
    return b"".join(map(message_event, said if isinstance(said, list) else [said]))


def _event(data: bytes) -> bytes:
    lines = b"".join(b"data: " + line + b"\n" for line in data.splitlines())
    return b"event: message\n" + lines + b"\n"


class StreamedAnswer:
    """An upstream's answer as events: its client's answer has begun as a stream of them."""

    def __init__(self, read: ReadRequest, status: int, fields: RawFields) -> None:
        """Begin with the head that the upstream sent."""
        self._read = read
        self._status = status
        kind = (value_of(fields, b"content-type") or b"").partition(b";")[0].strip().lower()
        self._is_stream = status == 200 and kind == _EVENTS
        self._is_json = status == 200 and kind == _JSON
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> bytes:
        """Return what of a piece goes to the client now; empty data is the end."""
        if self._is_stream:
            return data
        if data:
            self._size += len(data)
            if self._size <= _LONGEST:
                self._pieces.append(data)
            return b""
        if self._is_json and self._size <= _LONGEST:
            return _event(b"".join(self._pieces))
        if self._status in (202, 204):
            return b""
        text = f"Headrace: the server answered with status {self._status}."
        return b"".join(
            message_event(_error(request_id, text)) for request_id, _ in self._read.answers
        )
