"""mitmproxy inside this process: a master with the few addons that are needed, and our own."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mitmproxy import options
from mitmproxy.addons.next_layer import NextLayer
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.master import Master
from mitmproxy.proxy import mode_servers

from proxy.config import GatewayConfig
from proxy.mitm import fastpath
from proxy.mitm import interception as destinations
from proxy.mitm.listeners import Address, Listeners
from proxy.recording.recorder import Recorder
from trajectory.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses of a running gateway; None for a listener that is off."""

    base_url: Address | None
    forward: Address | None
    admin: Address | None
    transparent: Address | None = None


class EmbeddedMaster:
    """A master in the running event loop; one per process at a time."""

    def __init__(self) -> None:
        self.master = Master(options.Options(), event_loop=asyncio.get_running_loop())
        self.master._legacy_log_events.uninstall()
        self.servers = Proxyserver()  # type: ignore[no-untyped-call]

    def handlers(self) -> Any:
        """Return the handlers of the connections that stand, by connection id."""
        return self.servers.connections

    async def start(
        self,
        config: GatewayConfig,
        addresses: Addresses,
        *,
        before: Sequence[object],
        after: Sequence[object],
        listeners: Listeners,
        recorder: Recorder | None,
        secure: ssl.SSLContext | None = None,
    ) -> None:
        """Serve on bound sockets.

        Args:
            config: the settings.
            addresses: where the sockets are bound.
            before: addons that are asked before mitmproxy decides what a connection speaks.
            after: addons that come later, the gate and what looks at its word last.
            listeners: the sockets.
            recorder: what captures; where the fast path says when bytes go out, it is patient.
            secure: TLS of the base-URL port, where that has a certificate of its own.

        Raises:
            ConfigurationError: mitmproxy could not listen, or a file of certificates is none.
        """
        add: Callable[..., None] = self.master.addons.add
        add(self.servers, *before, NextLayer(), *after)
        self._set_options(config, _modes(addresses))
        fast = fastpath.apply(self.master, enabled=config.fastpath, pending=recorder)
        if recorder is not None:
            recorder.patient = fast
        setattr(mode_servers.AsyncioServerInstance, "listen", listeners.listen(secure))  # noqa: B010 - of mitmproxy's
        if not await self.servers.setup_servers():
            raise ConfigurationError("the gateway could not listen on its ports; see the log")
        await self.master.running()

    def _set_options(self, config: GatewayConfig, modes: list[str]) -> None:
        update: Callable[..., None] = self.master.options.update
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
            update(ssl_verify_upstream_trusted_ca=str(_trusted(config.upstream_ca)))

    async def stop_listening(self) -> None:
        """Take no more connections; those that stand go on."""
        await self.servers.servers.update([])

    async def close(self) -> None:
        """Close all connections, then the master."""
        await self.stop_listening()
        tasks = []
        for handler in list(self.servers.connections.values()):
            for transport in list(handler.transports.values()):
                if transport.handler is not None:
                    transport.handler.cancel("gateway closes")
                    tasks.append(transport.handler)
        if tasks:
            await asyncio.wait(tasks, timeout=5)
        deadline = asyncio.get_running_loop().time() + 5
        while self.servers.connections and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - once, at the end
            await asyncio.sleep(0.01)
        await self.master.done()


def _trusted(path: Path) -> Path:
    """Return a file of certificates to trust; it is read now, not at the first call."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError as error:
        raise ConfigurationError(
            f"gateway.upstream_ca: {path} cannot be used ({error.strerror or error}); it must be "
            "a PEM file with the certificates to trust upstream"
        ) from None
    return path


def _modes(addresses: Addresses) -> list[str]:
    modes = []
    if addresses.base_url is not None:
        modes.append(_mode("reverse:http://headrace.invalid:80", addresses.base_url))
    if addresses.forward is not None:
        modes.append(_mode("regular", addresses.forward))
    if addresses.transparent is not None:
        destinations.install(addresses.transparent[1])
        modes.append(_mode("transparent", addresses.transparent))
    return modes


def _mode(spec: str, address: Address) -> str:
    host, port = address
    return f"{spec}@{f'[{host}]' if ':' in host else host}:{port}"
