"""The SQL door of an installation: its keys, its limits, its audit, and how it starts and stops."""

import ipaddress
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from types import FrameType
from typing import TYPE_CHECKING

from governance.audit import AuditLog
from headrace.app.home import Home
from headrace.app.installation import gateway_config
from headrace.app.master_key import Secrets
from headrace.app.settings import DoorSettings, Settings
from headrace.app.version import headrace_version
from lakehouse.sandbox.request import Limits
from lakehouse.sql_server.service import Reader, SqlLimits, SqlService
from proxy.keys import ALL_TENANTS, KeyRegistry
from trajectory.errors import ConfigurationError, WorkError

if TYPE_CHECKING:
    from lakehouse.lake import Lake
    from lakehouse.sql_server.flight import FlightServer, Tls
    from trajectory.http_server import HttpServer


def reader_of(registry: KeyRegistry, secret: str) -> Reader | None:
    """Return who reads with a key; None for keys that are wrong, revoked, or not for the lake."""
    identity = registry.authenticate(secret, role="lake")
    if identity is None:
        return None
    tenant = None if identity.tenant_id == ALL_TENANTS else identity.tenant_id
    tokens = registry.authenticate(secret, role="tokens") is not None
    return Reader(identity.key_id, tenant, tokens)


def sql_door(settings: Settings, home: Home, secrets: Secrets, lake: "Lake") -> SqlService:
    """Return the door of an installation, which listens nowhere yet."""
    registry = KeyRegistry.load(gateway_config(settings, home).keys)
    audit = AuditLog(home.audit / "audit.jsonl", secrets.derive(b"audit"))
    return SqlService(
        lake,
        authenticate=lambda secret: reader_of(registry, secret),
        record=audit.append,
        hash_key=secrets.derive(b"statement"),
        limits=limits_of(settings.door),
    )


def limits_of(settings: DoorSettings) -> SqlLimits:
    """Return what queries may use."""
    query = Limits(
        seconds=settings.seconds,
        memory_mib=settings.memory_mib,
        rows=settings.rows,
        result_mib=settings.result_mib,
    )
    return SqlLimits(query, settings.queries, settings.queries_per_key)


def tls_of(settings: DoorSettings) -> "Tls | None":
    """Return the certificate; keys never leave this machine in clear.

    Raises:
        ConfigurationError: the door would listen beyond this machine without one.
    """
    from lakehouse.sql_server.flight import Tls

    if settings.certificate is not None and settings.certificate_key is not None:
        for file in (settings.certificate, settings.certificate_key):
            if not file.is_file():
                raise ConfigurationError(f"door.certificate: {file} is not a file")
        return Tls(settings.certificate, settings.certificate_key)
    if (settings.certificate is None) != (settings.certificate_key is None):
        raise ConfigurationError("door.certificate and door.certificate_key belong together")
    if not _is_loopback(settings.host) and not settings.allow_plaintext:
        raise ConfigurationError(
            f"door.host {settings.host} is beyond this machine, and keys would travel in clear: set "
            "door.certificate and door.certificate_key, or door.allow_plaintext where something in "
            "front of the door does TLS"
        )
    return None


def serve(door: SqlService, settings: DoorSettings, *, announce: Callable[[str], None]) -> None:
    """Listen until SIGTERM or SIGINT; queries that run then are ended.

    Raises:
        ConfigurationError: the certificate is missing or wrong.
        WorkError: a port is taken.
    """
    tls = tls_of(settings)
    # Flight puts a traceback into every error that it sends; clients get the error's text alone.
    sys.tracebacklimit = 0
    flight = _listening(door, settings, tls)
    http = _http(door, settings, tls)
    over = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    scheme = ("grpc", "http") if tls is None else ("grpc+tls", "https")
    announce(f"Flight SQL  {scheme[0]}://{settings.host}:{flight.port}")
    with http or nullcontext():
        if http is not None:
            announce(f"HTTP        {scheme[1]}://{settings.host}:{http.port}/v1/sql")
        over.wait()
        door.close()  # first: it ends the queries that the servers would wait for
    flight.shutdown()


def _listening(door: SqlService, settings: DoorSettings, tls: "Tls | None") -> "FlightServer":
    import pyarrow as pa

    from lakehouse.sql_server.flight import FlightServer

    try:
        return FlightServer(
            door, host=settings.host, port=settings.port, version=headrace_version(), tls=tls
        )
    except (OSError, pa.ArrowException) as error:
        door.close()
        raise WorkError(
            f"the door cannot listen at {settings.host}:{settings.port} ({type(error).__name__}): the "
            "port is taken, or the certificate is none"
        ) from error


def _http(door: SqlService, settings: DoorSettings, tls: "Tls | None") -> "HttpServer | None":
    from lakehouse.sql_server.http import http_server

    if settings.http_port is None:
        return None
    try:
        return http_server(door, host=settings.host, port=settings.http_port, tls=tls)
    except OSError as error:
        door.close()
        raise WorkError(
            f"the door cannot listen at {settings.host}:{settings.http_port}: {error}"
        ) from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
