"""The gateway: mitmproxy embedded, both modes in one process, from start to drained end."""

import asyncio
import contextlib
import logging
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mitmproxy import options
from mitmproxy.addons.next_layer import NextLayer
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.master import Master
from mitmproxy.proxy import mode_servers

from proxy import destinations, fastpath, logs, wire
from proxy.admin import Admin
from proxy.admission import Admission
from proxy.authority import ensure_authority
from proxy.capture import Recorder
from proxy.config import GatewayConfig
from proxy.connecting import ConnectTimes
from proxy.counters import Counters
from proxy.credentials import Fingerprints
from proxy.endpoints import Endpoints
from proxy.gate import Gate
from proxy.identity import KeyRegistry
from proxy.interception import Interception, Tunnels
from proxy.limits import Budgets, Ledger
from proxy.recording import Recording
from proxy.routing import Router
from proxy.shadowing import Shadows
from proxy.spool import SpoolWriter, layout
from proxy.spool.keys import KeyRing
from proxy.spool.writer import SpoolState
from proxy.spooling import open_spool
from proxy.tracing import Tracing
from proxy.upkeep import Upkeep
from proxy.workers import Workers
from trajectory.errors import ConfigurationError

_log = logging.getLogger(__name__)
_BACKLOG = 2048
_LISTENERS = {"reverse": "base_url", "regular": "forward", "transparent": "transparent"}


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a running gateway listens; None for what is switched off."""

    base_url: tuple[str, int] | None
    forward: tuple[str, int] | None
    admin: tuple[str, int] | None
    transparent: tuple[str, int] | None = None


def serve(
    config: GatewayConfig,
    *,
    spool_key: bytes,
    fingerprint_key: bytes,
    ready: Callable[[Addresses], None] | None = None,
) -> None:
    """Run the gateway until SIGTERM or SIGINT, then finish the calls in flight and return.

    Args:
        config: the settings; with several ``workers`` this process only watches over them.
        spool_key: 32 bytes that seal the spool.
        fingerprint_key: up to 64 bytes for the fingerprints of credentials.
        ready: called once when all ports are open.

    Raises:
        ConfigurationError: a port is taken, a credential is missing, the authority is unusable.
    """
    if config.workers > 1:
        if config.forward_port is not None or config.transparent_port is not None:
            ensure_authority(config.authority)
        workers = Workers(config, spool_key=spool_key, fingerprint_key=fingerprint_key)
        workers.run(ready)
    else:
        serve_one(config, spool_key=spool_key, fingerprint_key=fingerprint_key, ready=ready)


def serve_one(
    config: GatewayConfig,
    *,
    spool_key: bytes,
    fingerprint_key: bytes,
    ready: Callable[[Addresses], None] | None = None,
) -> None:
    """Run one worker in this process; see :func:`serve`."""
    with asyncio.Runner(loop_factory=fastpath.new_event_loop(config.fastpath)) as runner:
        runner.run(_serve(config, spool_key, fingerprint_key, ready))


async def _serve(
    config: GatewayConfig,
    spool_key: bytes,
    fingerprint_key: bytes,
    ready: Callable[[Addresses], None] | None,
) -> None:
    gateway = Gateway(config, spool_key=spool_key, fingerprint_key=fingerprint_key)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(ValueError, RuntimeError):  # not the main thread
            loop.add_signal_handler(number, stop.set)
    try:
        addresses = await gateway.start()
        if ready is not None:
            ready(addresses)
        await stop.wait()
        await gateway.drain()
    finally:
        await gateway.close()


class Gateway:
    """One worker of the gateway inside a running event loop; one per process at a time."""

    def __init__(self, config: GatewayConfig, *, spool_key: bytes, fingerprint_key: bytes) -> None:
        self._config = config
        self.counters = Counters()
        self._router = Router(config)
        self._budgets = Budgets(Ledger(config.limits))
        self._sockets: dict[str, socket.socket] = {}
        self._spool: SpoolWriter | None = None
        self._recorder: Recorder | None = None
        self._keys = KeyRing(spool_key, file=config.spool.key_file)
        self._tracing = Tracing(config.traces) if config.traces else None
        self._fingerprints = Fingerprints(
            fingerprint_key,
            also=(
                choice.credential.header.encode()
                for route in config.routes
                for choice in route.choices
                if choice.credential is not None
            ),
        )
        self._shadows: Shadows | None = None
        self._draining = False
        self._master: Master | None = None
        self._gate: Gate | None = None
        self._servers: Proxyserver | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._admin = Admin(
            self.counters,
            gauges=self._gauges,
            levels=lambda: {plan.name: plan.level for plan in self._router.plans},
            disk=lambda: self._spool.breaker.failures if self._spool else {},
            ready=lambda: self._servers is not None and not self._draining and self._can_record(),
        )

    async def start(self) -> Addresses:
        """Open the ports.

        Raises:
            ConfigurationError: a port is taken, a credential is missing, the authority is unusable.
        """
        config = self._config
        registry = KeyRegistry.load(config.keys)
        opens = config.forward_port is not None or config.transparent_port is not None
        authority = ensure_authority(config.authority) if opens else None
        addresses = Addresses(
            base_url=self._bind("base_url", config.host, config.port),
            forward=self._bind("forward", config.forward_host, config.forward_port),
            transparent=self._bind("transparent", config.transparent_host, config.transparent_port),
            admin=self._bind("admin", config.admin_host, config.admin_port),
        )
        if config.capture:
            self._spool = open_spool(config.spool, self._keys.newest)
            self._recorder = Recorder(self._spool, self.counters)
        logs.muffle(self.counters)
        wire.install()
        self._gate = self._make_gate(registry)
        await self._start_master(addresses, Interception(authority, self.counters))
        if addresses.admin is not None:
            await self._admin.start(self._sockets["admin"])
        upkeep = Upkeep(
            config,
            router=self._router,
            ledger=self._budgets.ledger,
            keys=self._keys,
            spool=self._spool,
            counters=self.counters,
        )
        self._tasks = [asyncio.create_task(upkeep.run())]
        if config.probe_at_start:
            self._tasks.append(asyncio.create_task(upkeep.probe()))
        return addresses

    def _make_gate(self, registry: KeyRegistry) -> Gate:
        admission = Admission(
            self._config,
            router=self._router,
            registry=registry,
            budgets=self._budgets,
            counters=self.counters,
            fingerprints=self._fingerprints,
            spool=self._spool,
        )
        if self._recorder is not None:
            self._shadows = Shadows(self._recorder, self.counters, self._fingerprints)
        return Gate(
            admission,
            router=self._router,
            endpoints=Endpoints(registry, self._recorder, self.counters, self._fingerprints),
            registry=registry,
            budgets=self._budgets,
            recording=Recording(self._recorder, self._fingerprints) if self._recorder else None,
            counters=self.counters,
            tracing=self._tracing,
            shadows=self._shadows,
        )

    async def _start_master(self, addresses: Addresses, interception: Interception) -> None:
        config = self._config
        opts = options.Options()
        self._master = master = Master(opts, event_loop=asyncio.get_running_loop())
        master._legacy_log_events.uninstall()
        self._servers = servers = Proxyserver()  # type: ignore[no-untyped-call]
        add: Callable[..., None] = master.addons.add
        add(
            self._servers,
            Tunnels(self._router, self.counters),
            NextLayer(),
            interception,
            ConnectTimes(self._router, lambda: servers.connections),
            wire.Hearing(lambda: servers.connections),
            self._gate,
        )
        modes = []
        if addresses.base_url is not None:
            modes.append(_mode("reverse:http://headrace.invalid:80", addresses.base_url))
        if addresses.forward is not None:
            modes.append(_mode("regular", addresses.forward))
        if addresses.transparent is not None:
            destinations.install(addresses.transparent[1])
            modes.append(_mode("transparent", addresses.transparent))
        update: Callable[..., None] = opts.update
        update(
            mode=modes,
            connection_strategy="lazy",
            upstream_cert=False,
            http2=False,
            keep_host_header=True,
            tcp_timeout=config.idle_seconds,
            validate_inbound_headers=True,
        )
        if config.upstream_ca is not None:
            update(ssl_verify_upstream_trusted_ca=str(config.upstream_ca))
        fastpath.apply(master, enabled=config.fastpath)
        _set(mode_servers.AsyncioServerInstance, "listen", self._listen())
        if not await self._servers.setup_servers():
            raise ConfigurationError("the gateway could not listen on its ports; see the log")
        await master.running()

    def _bind(self, name: str, host: str, port: int | None) -> tuple[str, int] | None:
        """Bind a socket; several workers may bind the same port."""
        if port is None:
            return None
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # The protocol is named because asyncio sets TCP_NODELAY only where it is.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self._config.workers > 1 and name != "admin":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            bound.bind((host, port))
        except OSError as error:
            bound.close()
            self._close_sockets()
            raise ConfigurationError(
                f"cannot listen on {host}:{port}: {error.strerror}; stop what listens there or "
                f"choose another port for {name.replace('_', '-')}"
            ) from None
        bound.setblocking(False)
        self._sockets[name] = bound
        name_, port_, *_ = bound.getsockname()
        return str(name_), int(port_)

    def _listen(self) -> Callable[..., Any]:
        """Return what mitmproxy's servers call to listen: they serve on the sockets bound before."""
        sockets = self._sockets

        async def listen(instance: Any, _host: str, _port: int) -> list[asyncio.Server]:
            name = _LISTENERS[instance.mode.type_name]
            return [
                await asyncio.start_server(
                    instance.handle_stream, sock=sockets[name], backlog=_BACKLOG
                )
            ]

        return listen

    def _can_record(self) -> bool:
        """Tell whether calls of all routes pass; those that insist on capture need the spool."""
        if self._spool is None or not any(plan.mandatory for plan in self._router.plans):
            return True
        return self._spool.state in (SpoolState.OPEN, SpoolState.SHEDDING)

    def _gauges(self) -> dict[str, float]:
        gauges: dict[str, float] = {
            "flows": len(self._gate.live) if self._gate else 0,
            "connections": len(self._servers.connections) if self._servers else 0,
            "draining": float(self._draining),
        }
        if self._spool is not None:
            gauges["spool_bytes"] = self._spool.bytes_on_disk
            gauges["spool_open"] = float(self._spool.state is SpoolState.OPEN)
            gauges["spool_files"] = self._spool.files
            gauges["spool_fill_ratio"] = round(self._spool.fill, 4)
            gauges["spool_alarm"] = float(self._spool.alarm)
            oldest = layout.oldest(self._config.spool.directory)
            gauges["spool_oldest_seconds"] = 0.0 if oldest is None else time.time() - oldest
            gauges["spool_failures"] = self._spool.failures
        return gauges

    async def drain(self) -> None:
        """Stop listening and wait for the calls in flight, for ``drain_seconds`` at most."""
        self._draining = True
        if self._servers is None or self._gate is None:
            return
        await self._servers.servers.update([])
        deadline = time.monotonic() + self._config.drain_seconds
        while self._gate.live and time.monotonic() < deadline:  # noqa: ASYNC110 - once, at the end
            await asyncio.sleep(0.02)
        if self._gate.live:
            _log.warning("drain: %d calls were still in flight", len(self._gate.live))

    async def close(self) -> None:
        """Close everything; the spool last."""
        self._draining = True
        for task in self._tasks:
            task.cancel()
        self._admin.close()
        if self._servers is not None:
            await self._servers.servers.update([])
            await self._close_connections(self._servers)
        if self._master is not None:
            await self._master.done()
        if self._shadows is not None:
            await self._shadows.close()
        if self._spool is not None:
            self._spool.close()
        self._budgets.ledger.close()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
        self._close_sockets()
        fastpath.revert()
        logs.unmuffle()

    async def _close_connections(self, servers: Proxyserver) -> None:
        tasks = []
        for handler in list(servers.connections.values()):
            for transport in list(handler.transports.values()):
                if transport.handler is not None:
                    transport.handler.cancel("gateway closes")
                    tasks.append(transport.handler)
        if tasks:
            await asyncio.wait(tasks, timeout=5)
        deadline = time.monotonic() + 5
        while servers.connections and time.monotonic() < deadline:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)

    def _close_sockets(self) -> None:
        for bound in self._sockets.values():
            bound.close()
        self._sockets.clear()


def _set(owner: object, name: str, value: object) -> None:
    """Replace an attribute of mitmproxy's."""
    setattr(owner, name, value)


def _mode(spec: str, address: tuple[str, int]) -> str:
    host, port = address
    return f"{spec}@{f'[{host}]' if ':' in host else host}:{port}"
