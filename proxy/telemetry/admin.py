"""Health, readiness and metrics, on a port of their own.

They are served in the gateway's own event loop: the counts belong to it, and an answer of /health
says that it turns. Several workers have a port each, so that none speaks for another.
"""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path

from proxy.guard.operators import MOST_BODY_BYTES, OperatorApi
from proxy.heads import host_of
from proxy.routes.router import Router
from proxy.spool import SpoolWriter, layout
from proxy.spool.states import SpoolState
from proxy.telemetry.counters import Counters
from trajectory.files import read_file


def spool_gauges(spool: SpoolWriter, directory: Path) -> dict[str, float]:
    """Return how full the spool is and how its disk does."""
    try:
        oldest = layout.oldest(directory)
    except OSError:  # counted where it matters: a record that the disk refuses
        oldest = None
    return {
        "spool_bytes": spool.bytes_on_disk,
        "spool_open": float(spool.state is SpoolState.OPEN),
        "spool_files": spool.files,
        "spool_fill_ratio": round(spool.fill, 4),
        "spool_alarm": float(spool.alarm),
        "spool_oldest_seconds": 0.0 if oldest is None else time.time() - oldest,
        "spool_failures": spool.failures,
    }


def audit_gauges(state: Path) -> dict[str, float]:
    """Return what the last check of the audit log found, as the governor keeps it; nothing where there was none."""
    try:
        check = json.loads(read_file(state / "audit-check.json"))["check"]
        found = {"audit_intact": float(check["problem"] is None)}
        if check["whole_at"] is not None:
            found["audit_whole_check_seconds"] = time.time() - check["whole_at"]
    except (OSError, ValueError, TypeError, LookupError):
        return {}
    return found


def can_record(spool: SpoolWriter | None, router: Router) -> bool:
    """Tell whether calls of all routes pass; those that insist on capture need the spool."""
    if spool is None or not any(plan.mandatory for plan in router.plans):
        return True
    return spool.state in (SpoolState.OPEN, SpoolState.SHEDDING)


_HUNG_UP = (
    OSError,
    asyncio.IncompleteReadError,
    asyncio.LimitOverrunError,
)
"""A client that goes, sends too much or takes too long: there is nobody to answer."""


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _names_another(lines: Sequence[bytes]) -> bool:
    """Tell whether a request is for a host that is not this machine.

    So it is where a page in a browser gives its own name this machine's address.
    """
    hosts = [line.partition(b":")[2] for line in lines if line.lower().startswith(b"host:")]
    named = [host_of(host.decode("latin-1").strip()) for host in hosts]
    return any(each is not None and not _is_loopback(each) for each in named)


async def _operated(
    operators: OperatorApi,
    method: bytes,
    path: bytes,
    lines: Sequence[bytes],
    reader: asyncio.StreamReader,
) -> tuple[str, str, bytes]:
    """Answer an operator, who may send a short body."""
    fields = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in lines)
    }
    length = fields.get(b"content-length", b"0")
    if not length.isdigit() or int(length) > MOST_BODY_BYTES or b"transfer-encoding" in fields:
        return "413 Content Too Large", "text/plain", b"send a short body with its length\n"
    body = await reader.readexactly(int(length))
    reply = await asyncio.to_thread(
        operators.answer,
        method.decode("latin-1"),
        path.decode("latin-1"),
        fields.get(b"authorization", b"").decode("latin-1"),
        body,
    )
    return f"{reply.status} {HTTPStatus(reply.status).phrase}", "application/json", reply.body


class Admin:
    """A tiny HTTP server: one request per connection; GET, and what operators post of approvals."""

    def __init__(
        self,
        counters: Counters,
        *,
        gauges: Callable[[], dict[str, float]],
        ready: Callable[[], bool],
        disk: Callable[[], Mapping[str, int]],
        levels: Callable[[], Mapping[str, str]],
        operators: OperatorApi | None = None,
    ) -> None:
        self._counters = counters
        self._gauges = gauges
        self._ready = ready
        self._disk = disk
        self._levels = levels
        self._operators = operators
        self._is_local = False
        """It listens for this machine alone."""
        self._servers: list[asyncio.Server] = []

    async def start(self, listeners: Sequence[socket.socket]) -> None:
        """Serve on bound sockets."""
        # Not at import: the command line needs no metrics.
        from proxy.telemetry.metrics import prometheus

        self._prometheus = prometheus
        self._is_local = all(_is_loopback(str(each.getsockname()[0])) for each in listeners)
        self._servers = [await asyncio.start_server(self._serve, sock=each) for each in listeners]

    def close(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(*_HUNG_UP):
            async with asyncio.timeout(10):
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.split(b"\r\n")
                method, path, *_ = [*lines[0].split(b" "), b""]
                if self._is_local and _names_another(lines[1:]):
                    status, kind, body = "421 Misdirected Request", "text/plain", b"ask localhost\n"
                elif self._operators is not None and path.startswith(b"/approvals"):
                    status, kind, body = await _operated(
                        self._operators, method, path, lines[1:], reader
                    )
                else:
                    status, kind, body = self._page(method, path)
                writer.write(
                    f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n"
                    f"content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        writer.close()

    def _page(self, method: bytes, path: bytes) -> tuple[str, str, bytes]:
        if method != b"GET":
            return "405 Method Not Allowed", "text/plain", b"GET only\n"
        match path.partition(b"?")[0]:
            case b"/metrics":
                text = self._prometheus(
                    self._counters, self._gauges(), disk=self._disk(), levels=self._levels()
                )
                return "200 OK", "text/plain; version=0.0.4", text
            case b"/inventory":
                rows = self._counters.inventory.rows()
                return "200 OK", "application/json", json.dumps(rows).encode()
            case b"/routes":
                return "200 OK", "application/json", json.dumps(dict(self._levels())).encode()
            case b"/health":
                return "200 OK", "application/json", b'{"status":"ok"}'
            case b"/ready":
                ready = self._ready()
                body = json.dumps({"ready": ready}).encode()
                return ("200 OK" if ready else "503 Service Unavailable"), "application/json", body
        return "404 Not Found", "text/plain", b"/health, /ready, /metrics, /inventory, /routes\n"
