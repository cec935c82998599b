"""The door as a plain HTTP endpoint: a question as JSON, its rows as Arrow or JSON.

``POST /v1/sql`` with ``{"sql": …, "parameters": …, "as_of": …}`` and ``Authorization: Bearer KEY``;
``Accept: application/vnd.apache.arrow.stream`` asks for Arrow, anything else gives JSON.
``GET /v1/tables`` lists what there is, ``GET /health`` needs no key. A connection that ends without
its last chunk is an answer that broke off.

Who has shown no key yet has little time for a request, however it comes, and makes room for others when
too many wait: of the address that keeps most waiting, the connection that has waited longest is closed.
"""

import json
import math
import select
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa

from lakehouse.sandbox.deadline import QueryTimeoutError
from lakehouse.sql_server.flight import Tls
from lakehouse.sql_server.service import Asked, Reader, SqlDoor
from trajectory.errors import ConfigurationError, HeadraceError, RetryableError

ARROW = "application/vnd.apache.arrow.stream"
_LONGEST_BODY = 4 << 20
_MEMBERS = ("sql", "parameters", "as_of")
_LISTED = ", ".join(_MEMBERS)
_IDLE_SECONDS = 30.0
"""How long one read or write may take."""
_REQUEST_SECONDS = 30.0
"""How long a request may take to come, from the connection or the answer before to its last byte."""
_WAITING = 64
"""Connections without a whole request, at most; so many again may be answered at once."""


@dataclass(slots=True)
class _Connection:
    """A connection that is being served."""

    socket: socket.socket
    address: str
    since: float
    is_known: bool = False
    """It showed a key: nobody takes its place."""
    due: float | None = None
    """When its request must be there; None while it is answered."""


class _Connections:
    """The connections that are open; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, _Connection] = {}

    def enter(self, of: int, opened: socket.socket, address: str) -> None:
        """Count a connection in; where too many wait, one of them is closed for it."""
        now = time.monotonic()
        with self._lock:
            waiting = [one for one in self._open.items() if not one[1].is_known]
            if len(waiting) >= _WAITING:
                crowd = Counter(one.address for _, one in waiting)
                least = max(crowd.values())
                self._end(min(
                    (number for number, one in waiting if crowd[one.address] == least),
                    key=lambda number: self._open[number].since,
                ))  # fmt: skip
            self._open[of] = _Connection(opened, address, now, due=now + _REQUEST_SECONDS)

    def encrypt(self, of: int, opened: socket.socket) -> None:
        """Note that another socket stands for a connection."""
        with self._lock:
            if (one := self._open.get(of)) is not None:
                one.socket = opened

    def wait(self, of: int) -> None:
        """Note that a connection waits for its next request."""
        with self._lock:
            if (one := self._open.get(of)) is not None:
                one.since = time.monotonic()
                one.is_known, one.due = False, one.since + _REQUEST_SECONDS

    def know(self, of: int) -> bool:
        """Note that a connection showed a key; return False where too many did."""
        with self._lock:
            one = self._open.get(of)
            if one is None or sum(other.is_known for other in self._open.values()) >= _WAITING:
                return False
            one.is_known = True
            return True

    def answer(self, of: int) -> None:
        """Note that a connection's request has come whole."""
        with self._lock:
            if (one := self._open.get(of)) is not None:
                one.due = None

    def leave(self, of: int) -> None:
        """Count a connection out."""
        with self._lock:
            self._open.pop(of, None)

    def sweep(self) -> None:
        """Close the connections whose request did not come in time."""
        now = time.monotonic()
        with self._lock:
            for number in [
                n for n, one in self._open.items() if one.due is not None and one.due < now
            ]:
                self._end(number)

    def _end(self, of: int) -> None:
        """Shut a connection; its thread finds its end."""
        with suppress(OSError):  # as a plain socket: its thread may be reading from it
            socket.socket.shutdown(self._open.pop(of).socket, socket.SHUT_RDWR)


class HttpDoor(ThreadingHTTPServer):
    """Serves one :class:`SqlDoor`; ``serve_forever`` runs until ``shutdown``."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, door: SqlDoor, *, host: str, port: int, tls: Tls | None = None) -> None:
        """Listen at ``host`` and ``port`` (0 picks a free one, see ``server_address``)."""
        self.door = door
        self._tls: ssl.SSLContext | None = None
        self.connections = _Connections()
        if tls is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(tls.certificate, tls.key)
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own."""
        self.connections.enter(request.fileno(), request, client_address[0])
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection."""
        place = request.fileno()
        try:
            request.settimeout(_IDLE_SECONDS)
            if self._tls is not None:
                request = self._tls.wrap_socket(
                    request, server_side=True, do_handshake_on_connect=False
                )
                self.connections.encrypt(place, request)
                request.do_handshake()
            self.finish_request(request, client_address)
        except Exception:  # noqa: BLE001 - a thread's end is nobody's, and its text could hold data
            self.handle_error(request, client_address)
        finally:
            self.connections.leave(place)  # first: the number is free once the socket is closed
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """Look after the connections, twice a second."""
        self.connections.sweep()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that went away is no event, and texts could hold data."""


class _Handler(BaseHTTPRequestHandler):
    server: HttpDoor
    protocol_version = "HTTP/1.1"
    server_version = "headrace"
    sys_version = ""

    def handle_one_request(self) -> None:
        """Wait for a request and answer it."""
        self.server.connections.wait(self.connection.fileno())
        super().handle_one_request()

    def do_GET(self) -> None:
        """Answer /health and /v1/tables."""
        if self.path == "/health":
            self._json(HTTPStatus.OK, {"status": "ok"})
        elif self.path == "/v1/tables":
            self._guarded(self._tables)
        else:
            self._error(HTTPStatus.NOT_FOUND, "there are POST /v1/sql and GET /v1/tables")

    def do_POST(self) -> None:
        """Answer /v1/sql."""
        if self.path != "/v1/sql":
            self._error(HTTPStatus.NOT_FOUND, "there are POST /v1/sql and GET /v1/tables")
            return
        self._guarded(self._sql)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard library's name
        """Log nothing: the audit has each question."""

    def _guarded(self, work: Callable[[Reader], None]) -> None:
        kind, _, secret = self.headers.get("authorization", "").partition(" ")
        found = self.server.door.authenticate(secret.strip()) if kind.lower() == "bearer" else None
        if found is None:
            self._error(
                HTTPStatus.UNAUTHORIZED,
                "missing, wrong or revoked key, or one without the role lake",
            )
            return
        if not self.server.connections.know(self.connection.fileno()):
            self._error(HTTPStatus.SERVICE_UNAVAILABLE, "too many are asking at once; ask again")
            return
        try:
            work(found)
        except QueryTimeoutError as error:
            self._error(HTTPStatus.GATEWAY_TIMEOUT, str(error))
        except ConfigurationError as error:
            self._error(HTTPStatus.BAD_REQUEST, str(error))
        except RetryableError as error:
            self._error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except HeadraceError as error:
            self._error(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))

    def _tables(self, reader: Reader) -> None:
        tables = [
            {
                "name": one.name,
                "kind": one.kind,
                "comment": one.comment,
                "columns": _columns(one.schema),
            }
            for one in self.server.door.catalog(reader)
        ]
        self.server.connections.answer(self.connection.fileno())
        self._json(HTTPStatus.OK, {"tables": tables})

    def _sql(self, reader: Reader) -> None:
        body = self._body()
        self.server.connections.answer(self.connection.fileno())
        asked = self.server.door.ask(
            reader,
            body["sql"],
            body.get("parameters"),
            as_of=_moment(body.get("as_of")),
            gone=self._gone,
        )
        with closing(asked):
            as_arrow = ARROW in self.headers.get("accept", "")
            chunks = _as_arrow(asked) if as_arrow else _as_json(asked)
            first = next(chunks)  # what is refused at the first rows still gets a status of its own
            self.send_response(HTTPStatus.OK)
            self.send_header("content-type", ARROW if as_arrow else "application/json")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            try:
                self._chunk(first)
                for chunk in chunks:
                    self._chunk(chunk)
                asked.close()  # noted before the client knows that it has all
                self._chunk(b"")
            except HeadraceError:
                self.close_connection = True

    def _body(self) -> dict[str, Any]:
        try:
            length = int(self.headers.get("content-length", ""))
        except ValueError:
            raise ConfigurationError("send the question with a content-length") from None
        if not 0 < length <= _LONGEST_BODY:
            self.close_connection = True
            raise ConfigurationError(f"a question has 1 to {_LONGEST_BODY:,} bytes")
        try:
            body = json.loads(self.rfile.read(length))
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict) or not isinstance(body.get("sql"), str):
            raise ConfigurationError('send JSON: {"sql": "select …", "parameters": […]}')
        if unknown := sorted(set(body) - set(_MEMBERS)):
            raise ConfigurationError(f"{unknown[0]!r} means nothing here; give {_LISTED}")
        if not isinstance(body.get("parameters"), list | dict | None):
            raise ConfigurationError("parameters are a list for ?, or an object for $name")
        return body

    def _gone(self) -> bool:
        if isinstance(self.connection, ssl.SSLSocket):
            return False
        with suppress(OSError, ValueError):
            readable, _, _ = select.select([self.connection], [], [], 0)
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        return True

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _json(self, status: HTTPStatus, value: Any) -> None:
        data = json.dumps(value, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _error(self, status: HTTPStatus, text: str) -> None:
        if status is not HTTPStatus.NOT_FOUND and self.command == "POST":
            self.close_connection = True  # its body may not have been read
        self._json(status, {"error": {"status": status.phrase.lower(), "message": text}})


def _as_arrow(asked: Asked) -> Iterator[bytes]:
    sink = _Chunks()
    with pa.ipc.new_stream(sink, asked.schema) as writer:
        for batch in asked.batches():
            writer.write_batch(batch)
            yield sink.taken()
    yield sink.taken()


class _Chunks:
    """A file that hands on what was written to it."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        """Keep what is written."""
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing."""

    def taken(self) -> bytes:
        """Return what was written since the last call."""
        data, self._parts = b"".join(self._parts), []
        return data


def _as_json(asked: Asked) -> Iterator[bytes]:
    """Yield one JSON object; the rows are lists in the order of the columns."""
    batches = asked.batches(may_be_cut=True)
    head = json.dumps({"columns": _columns(asked.schema)}, ensure_ascii=False)[:-1]
    text = f'{head}, "rows": ['
    comma = ""
    for batch in batches:
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            text += comma + json.dumps([_plain(value) for value in row], ensure_ascii=False)
            comma = ",\n"
        yield text.encode()
        text = ""
    cut = "true" if asked.outcome == "truncated" else "false"
    yield f'{text}], "truncated": {cut}}}\n'.encode()


def _columns(schema: pa.Schema) -> list[dict[str, str]]:
    columns = []
    for field in schema:
        said = {"name": field.name, "type": str(field.type)}
        comment = (field.metadata or {}).get(b"comment")
        columns.append(said if comment is None else {**said, "comment": comment.decode()})
    return columns


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; what JSON has no number for is null."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case datetime() | date() | time_of_day():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return value.hex()
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case None | bool() | int() | str():
            return value
    return str(value)


def _moment(text: Any) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ConfigurationError("as_of is a moment such as 2026-11-20T12:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
