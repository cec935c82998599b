"""JSON-RPC lines of a stdio MCP server become exchanges, as if they had come over HTTP.

A request and the answer with its id are one exchange; a notification is one without an answer's
body. Requests of the server to its client are marked by a header, since both sides may ask.
"""

import json
from collections import OrderedDict
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

from proxy.clients.keys import KeyRegistry
from proxy.recording.capture import Capture
from proxy.recording.recorder import Recorder
from proxy.routes.route import JOURNAL, Level
from proxy.spool import records
from trajectory.exchange import ClientIdentity, ExchangeOutcome

LINE_BYTES = 16 * 1024 * 1024
"""A line beyond this is passed on like any other but not kept: MCP messages are far smaller."""

OPEN_REQUESTS = 4096
"""Requests that may wait for their answers; beyond it the oldest counts as unanswered."""

ORIGIN_HEADER = b"x-headrace-origin"
_JSON = (b"content-type", b"application/json")


class LineCutter:
    """Cuts bytes into lines, equal for every way of splitting them, with bounded memory."""

    def __init__(self, limit: int = LINE_BYTES) -> None:
        """Begin before the first byte."""
        self._limit = limit
        self._pending: list[bytes] = []
        self._size = 0
        self.dropped = 0
        """Lines that were longer than the limit."""

    def feed(self, data: bytes) -> list[bytes]:
        """Take more bytes and return the lines that they end, without their ends."""
        *ends, rest = data.split(b"\n")
        lines = []
        for end in ends:
            self._add(end)
            if self._size > self._limit:
                self.dropped += 1
            elif line := b"".join(self._pending).strip(b"\r"):
                lines.append(line)
            self._pending, self._size = [], 0
        self._add(rest)
        return lines

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            self._pending.clear()
        elif piece:
            self._pending.append(piece)


class Server(NamedTuple):
    """The tapped server, and who uses it."""

    client: ClientIdentity
    name: str
    """Its name in captures and policies, like a route's."""
    session: str
    """Names this run of it: all its messages belong together."""
    trace_parent: str | None = None
    """W3C trace context that the client gave in its environment."""


class MessageRecorder:
    """Writes the messages of one run into the spool; calls may come from two threads."""

    def __init__(self, recorder: Recorder, registry: KeyRegistry, server: Server) -> None:
        """Begin a run."""
        self._recorder = recorder
        self._registry = registry
        self._server = server
        self._origin = records.pack_origin(
            server.client, route=server.name, mode="stdio", upstream=f"stdio://{server.name}"
        )
        self._open: OrderedDict[tuple[bool, str], Capture] = OrderedDict()
        """Requests without an answer so far, by side (from the client) and id."""
        self._lock = Lock()
        self._closed = False

    def message(self, line: bytes, *, from_client: bool) -> str:
        """Record one line; return the step that begins with it, empty where none does."""
        with self._lock:
            if self._closed:
                return ""
            if not self._registry.valid(self._server.client.key_id):
                self._recorder.counters.uncaptured["key-revoked"] += 1
                return ""
            values = _messages(line)
            answered = [
                self._open.pop((not from_client, name))
                for name in _ids(values, asked=False)
                if (not from_client, name) in self._open
            ]
            if answered:
                for capture in answered:
                    _answer(capture, line)
                return ""
            for name in _cancelled(values):
                if capture_ := self._open.pop((from_client, name), None):
                    capture_.end(ExchangeOutcome.CLIENT_ABORT)
            return self._begin(line, _ids(values, asked=True), from_client=from_client)

    def _begin(self, line: bytes, names: list[str], *, from_client: bool) -> str:
        headers = [_JSON, (b"mcp-session-id", self._server.session.encode())]
        if self._server.trace_parent:
            headers.append((b"traceparent", self._server.trace_parent.encode()))
        if not from_client:
            headers.append((ORIGIN_HEADER, b"server"))
        head = partial(
            records.request_head,
            origin=self._origin,
            method=b"POST",
            path=b"/mcp",
            query=b"",
            headers=headers,
        )
        capture = Capture(self._recorder, head, Level.FULL, "", JOURNAL)
        capture.on_request(line)
        capture.request_done()
        for name in names:
            before = self._open.pop((from_client, name), None)
            if (
                before is not None
            ):  # of two requests under one id, nobody can tell whose an answer is
                before.end(ExchangeOutcome.UPSTREAM_ABORT)
                capture.end(ExchangeOutcome.UPSTREAM_ABORT)
            self._open[from_client, name] = capture
        if not names:
            capture.response_head(202, ())
            capture.end(ExchangeOutcome.COMPLETE)
        if len(self._open) > OPEN_REQUESTS:
            self._open.popitem(last=False)[1].end(ExchangeOutcome.UPSTREAM_ABORT)
        return capture.exchange.hex()

    def close(self, outcome: ExchangeOutcome) -> None:
        """End what was never answered; nothing is recorded after that."""
        with self._lock:
            self._closed = True
            while self._open:
                self._open.popitem()[1].end(outcome)


def _answer(capture: Capture, line: bytes) -> None:
    if not capture.ended:
        capture.response_head(200, (_JSON,), length=len(line))
        capture.on_response(line)


def _messages(line: bytes) -> list[dict[str, Any]]:
    """Return the messages of a line: one, or those of a batch; none where it is no JSON."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return []
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, dict)]


def _ids(values: list[dict[str, Any]], *, asked: bool) -> list[str]:
    """Return the ids of the requests (or of the answers) among messages."""
    return [
        json.dumps(value["id"])
        for value in values
        if ("method" in value) is asked and isinstance(value.get("id"), str | int)
    ]


def _cancelled(values: list[dict[str, Any]]) -> list[str]:
    """Return the ids of requests that a message takes back."""
    found = []
    for value in values:
        parameters = value.get("params")
        if value.get("method") == "notifications/cancelled" and isinstance(parameters, dict):
            found.append(json.dumps(parameters.get("requestId")))
    return found
