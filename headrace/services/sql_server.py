"""The SQL server of an installation: its keys, its limits, its audit, and how it starts and stops."""

import ipaddress
import os
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
from headrace.app.settings import Settings, SqlServerSettings
from headrace.app.version import headrace_version
from lakehouse.sandbox.request import Limits
from lakehouse.sql_server.service import Reader, SqlLimits, SqlService
from proxy.clients.keys import ALL_TENANTS, KeyRegistry
from trajectory.errors import ConfigurationError, WorkError

if TYPE_CHECKING:
    from lakehouse.lake import Lake
    from lakehouse.sql_server.flight import FlightServer, Tls
    from trajectory.http_server import HttpServer

_STOP_SECONDS = 5


def reader_of(registry: KeyRegistry, secret: str) -> Reader | None:
    """Return who reads with a key; None for keys that are wrong, revoked, or not for the lake."""
    identity = registry.authenticate(secret, role="lake")
    if identity is None:
        return None
    tenant = None if identity.tenant_id == ALL_TENANTS else identity.tenant_id
    tokens = registry.authenticate(secret, role="tokens") is not None
    return Reader(f"client:{identity.key_id}", tenant, tokens)


def sql_service(settings: Settings, home: Home, secrets: Secrets, lake: "Lake") -> SqlService:
    """Return what answers queries on an installation; it listens nowhere yet."""
    registry = KeyRegistry.load(gateway_config(settings, home).keys)
    audit = AuditLog(home.audit / "audit.jsonl", secrets.derive(b"audit"))
    return SqlService(
        lake,
        authenticate=lambda secret: reader_of(registry, secret),
        record=audit.append,
        hash_key=secrets.derive(b"statement"),
        limits=limits_of(settings.sql_server),
    )


def limits_of(settings: SqlServerSettings) -> SqlLimits:
    """Return what queries may use."""
    query = Limits(
        seconds=settings.seconds,
        memory_mib=settings.memory_mib,
        rows=settings.rows,
        result_mib=settings.result_mib,
    )
    return SqlLimits(query, settings.queries, settings.queries_per_key)


def tls_of(settings: SqlServerSettings) -> "Tls | None":
    """Return the certificate; keys never leave this machine in clear.

    Raises:
        ConfigurationError: the server would listen beyond this machine without one.
    """
    from lakehouse.sql_server.flight import Tls

    if settings.certificate is not None and settings.certificate_key is not None:
        for file in (settings.certificate, settings.certificate_key):
            if not file.is_file():
                raise ConfigurationError(f"sql_server.certificate: {file} is not a file")
        return Tls(settings.certificate, settings.certificate_key)
    if (settings.certificate is None) != (settings.certificate_key is None):
        raise ConfigurationError(
            "sql_server.certificate and sql_server.certificate_key belong together"
        )
    if not _is_loopback(settings.host) and not settings.allow_plaintext:
        raise ConfigurationError(
            f"sql_server.host {settings.host} is beyond this machine, and keys would travel in clear: set "
            "sql_server.certificate and sql_server.certificate_key, or sql_server.allow_plaintext where something in "
            "front of the server does TLS"
        )
    return None


def serve(
    service: SqlService, settings: SqlServerSettings, *, announce: Callable[[str], None]
) -> None:
    """Listen until SIGTERM or SIGINT; queries that run then are ended.

    Raises:
        ConfigurationError: the certificate is missing or wrong.
        WorkError: a port is taken.
    """
    tls = tls_of(settings)
    # Flight puts a traceback into every error that it sends; clients get the error's text alone.
    sys.tracebacklimit = 0
    flight = _listening(service, settings, tls)
    http = _http(service, settings, tls)
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
        service.close()  # first: it ends the queries that the servers would wait for
    ending = threading.Thread(target=flight.shutdown, daemon=True)
    ending.start()
    ending.join(_STOP_SECONDS)
    if (
        ending.is_alive()
    ):  # gRPC waits for ever for a client that reads no more, at a usual exit too
        sys.stderr.flush()
        os._exit(0)


def _listening(
    service: SqlService, settings: SqlServerSettings, tls: "Tls | None"
) -> "FlightServer":
    import pyarrow as pa

    from lakehouse.sql_server.flight import FlightServer

    try:
        return FlightServer(
            service, host=settings.host, port=settings.port, version=headrace_version(), tls=tls
        )
    except (OSError, pa.ArrowException) as error:
        service.close()
        raise WorkError(
            f"the server cannot listen at {settings.host}:{settings.port} ({type(error).__name__}): the "
            "port is taken, or the certificate is none"
        ) from error


def _http(
    service: SqlService, settings: SqlServerSettings, tls: "Tls | None"
) -> "HttpServer | None":
    from lakehouse.sql_server.http import http_server

    if settings.http_port is None:
        return None
    try:
        return http_server(service, host=settings.host, port=settings.http_port, tls=tls)
    except OSError as error:
        service.close()
        raise WorkError(
            f"the server cannot listen at {settings.host}:{settings.http_port}: {error}"
        ) from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
