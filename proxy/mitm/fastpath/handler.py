"""The handler of a client's connection: hooks run in place, what one event makes goes out at once."""

import asyncio
import dataclasses
import inspect
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mitmproxy import exceptions
from mitmproxy.connection import Connection, ConnectionState
from mitmproxy.proxy import commands, events, mode_servers, server
from mitmproxy.proxy.layer import Layer
from mitmproxy.proxy.layers.http import HttpLayer
from mitmproxy.proxy.layers.http._hooks import HttpConnectedHook
from mitmproxy.proxy.layers.http._http1 import Http1Server
from mitmproxy.utils import asyncio_utils

_mitmproxy_log = logging.getLogger("mitmproxy.fastpath")

MOST_CALLS = 100
"""Connections to one upstream for one client: as many as it may have streams of HTTP/2. Stock code
has 5, and a sixth call waits for the end of another."""
READS_AHEAD = 16
"""Reads of at most 64 KiB from a client whose upstream is being connected: 1 MiB waits for it."""
ROOM = "headrace_room"
"""Attribute of an upstream's connection: an event that is set once its client takes more."""

type HookTable = dict[str, tuple[Callable[[Any], Any], ...]]


class PendingWrites(Protocol):
    """Holds back bytes for clients until the spool has written them."""

    @property
    def waiting(self) -> Sequence[object]:
        """Not empty while bytes for clients must be held."""

    def hold(self, release: Callable[[], None]) -> None:
        """Call ``release``, which sends held bytes, once nothing waits any more."""

    def settle(self) -> None:
        """Write the waiting bytes at once."""


class _Nothing:
    """Stands where nothing is waited for."""

    waiting = ()

    def hold(self, release: Callable[[], None]) -> None:
        """Hold nothing."""
        release()

    def settle(self) -> None:
        """There is nothing to do."""


class FastHandler(mode_servers.ProxyConnectionHandler):
    """Handles one client connection; all its events pass through one queue, in order."""

    hooks: HookTable = {}  # noqa: RUF012 - set by the subclass that apply() makes

    pending: PendingWrites = _Nothing()
    """What bytes for clients wait for; set by the subclass too."""

    def __init__(self, *arguments: Any) -> None:
        init: Callable[..., None] = super().__init__
        init(*arguments)
        writer = self.transports[self.client].writer
        secure = writer.get_extra_info("ssl_object", None) if writer is not None else None
        if secure is not None:  # the listener has a certificate of its own and opened the TLS
            self.client.alpn = (secure.selected_alpn_protocol() or "").encode() or None
        self.max_conns = defaultdict(lambda: asyncio.Semaphore(MOST_CALLS))
        self._queue: deque[events.Event] = deque()
        self._busy = False
        self._connects = False
        """A CONNECT was answered, and its outer layers are still asked."""
        self._tunnels = False
        """They are not any more."""
        self._unsent: dict[Connection, list[bytes]] = {}
        self._held: list[bytes] = []
        """For the client, until the spool knows of what they belong to."""
        self._opening = False
        """An upstream was being connected when last looked at."""
        self._ahead = 0
        """Reads from the client since then."""

    def log(self, message: str, level: int = logging.INFO, exc_info: Any = None) -> None:
        """Log only what would be shown."""
        if level >= logging.WARNING:
            _mitmproxy_log.log(level, message, exc_info=exc_info)

    async def handle_hook(self, hook: commands.StartHook) -> None:
        """Run a hook that the connection itself waits for."""
        rest = self._run_hook(hook)
        if rest is not None:
            with self.timeout_watchdog.disarm():
                await rest

    def _run_hook(self, hook: commands.StartHook) -> Any:
        """Run a hook in place; return what remains to be awaited, None when it is done."""
        functions = self.hooks.get(hook.name)
        if functions is None:
            return None
        data = getattr(hook, _argument(type(hook)))
        for index, function in enumerate(functions):
            try:
                result = function(data)
            except exceptions.AddonHalt:
                return None
            except Exception as error:  # noqa: BLE001 - as stock: an addon's error ends only its hook
                _hook_failed(error)
                continue
            if result is not None and inspect.isawaitable(result):
                return _rest_of_hook(result, functions[index + 1 :], data)
        return None

    async def _finish_hook(self, rest: Any, hook: commands.StartHook) -> None:
        with self.timeout_watchdog.disarm():
            await rest
        if hook.blocking:
            await self.server_event(events.HookCompleted(hook))

    async def server_event(self, event: events.Event) -> None:
        """Take an event; events that arrive while one is handled wait their turn."""
        queue = self._queue
        queue.append(event)
        if self._busy:
            return
        self._busy = True
        self.timeout_watchdog.register_activity()  # type: ignore[no-untyped-call]
        try:
            while queue:
                self._one(queue.popleft())
            if self._connects:
                self._leave_out()
        except Exception:  # noqa: BLE001 - as stock: the connection is lost, the process goes on
            queue.clear()
            self.log("mitmproxy has crashed!", logging.ERROR, exc_info=True)
        finally:
            self._busy = False
            if self._unsent:
                self._send()

    def _one(self, event: events.Event) -> None:
        transports = self.transports
        for command in self.layer.handle_event(event):
            if isinstance(command, commands.SendData):
                if command.connection in transports:
                    self._unsent.setdefault(command.connection, []).append(command.data)
            elif isinstance(command, commands.StartHook):
                self._start_hook(command)
            elif isinstance(command, commands.Log):
                if command.level >= logging.WARNING:
                    self.log(command.message, command.level)
            else:
                self._send()
                self._other(command)

    def _leave_out(self) -> None:
        """Hand events straight to what a CONNECT opened, once all before it would pass them on.

        Stock code makes of each event an HTTP message and an event again, and of each command: a
        fifth of a call's CPU.
        """
        inner = _opened(self.layer)
        if inner is not None:
            self.layer, self._connects, self._tunnels = inner, False, True

    def _start_hook(self, hook: commands.StartHook) -> None:
        if type(hook) is HttpConnectedHook:
            self._connects = True
        rest = self._run_hook(hook)
        if rest is not None:
            self._send()
            self._task(self._finish_hook(rest, hook), f"handle_hook({hook.name})", keep=True)
        elif hook.blocking:
            self._queue.appendleft(events.HookCompleted(hook))

    def _other(self, command: commands.Command) -> None:
        if isinstance(command, commands.OpenConnection):
            transport = server.ConnectionIO()
            self.transports[command.connection] = transport
            task = self._task(self.open_connection(command), "server connection handler")
            if self.transports.get(command.connection) is transport:
                transport.handler = task
        elif isinstance(command, commands.RequestWakeup):
            self.wakeup_timer.add(self._task(self.wakeup(command), "wakeup timer"))
        elif isinstance(command, commands.ConnectionCommand):
            if self._held:
                self.pending.settle()
            if command.connection in self.transports:
                self._close(command)
        else:
            raise TypeError(f"unexpected command: {type(command).__name__}")

    def _close(self, command: commands.ConnectionCommand) -> None:
        """Close a connection, or one side of it; under a CONNECT always both, as stock code does."""
        connection = command.connection
        if not self._tunnels:
            half = isinstance(command, commands.CloseTcpConnection) and command.half_close
            self.close_connection(connection, half)
        elif connection is not self.client or connection.state & ConnectionState.CAN_WRITE:
            self.close_connection(connection)

    def _task(self, coroutine: Any, name: str, *, keep: bool = False) -> asyncio.Task[Any]:
        return asyncio_utils.create_task(
            coroutine, name=name, keep_ref=keep, client=self.client.peername
        )

    def _send(self) -> None:
        """Write what was made to send, one write for each connection."""
        unsent, self._unsent = self._unsent, {}
        for connection, parts in unsent.items():
            if self.pending.waiting and connection is self.client:
                if not self._held:
                    self.pending.hold(self._release)
                self._held += parts
            else:
                self._write(connection, parts)

    def _release(self) -> None:
        """Write what was held for the client."""
        parts, self._held = self._held, []
        self._write(self.client, parts)

    def _write(self, connection: Connection, parts: list[bytes]) -> None:
        transport = self.transports.get(connection)
        if transport is None or transport.writer is None:
            return
        writer = transport.writer
        if not writer.is_closing():
            writer.write(parts[0] if len(parts) == 1 else b"".join(parts))

    async def drain_writers(self) -> None:
        """Wait only for writers that have something left to write, and for room in a stream."""
        for connection, transport in self.transports.items():
            writer = transport.writer
            if isinstance(writer, asyncio.StreamWriter):
                if self._shakes_hands(connection):
                    self._opening = True
                if not (writer.is_closing() or writer.transport.get_write_buffer_size()):
                    continue
            elif writer is None:
                self._opening = True
                continue
            drain: Callable[[], Any] = super().drain_writers
            await drain()
            break
        if self._opening:
            await self._wait_for_upstream()
        for connection, transport in self.transports.items():
            room: asyncio.Event | None = getattr(connection, ROOM, None)
            if room is not None and transport.handler is asyncio.current_task():
                await room.wait()
                break

    def _shakes_hands(self, connection: Connection) -> bool:
        """Return whether TLS towards an upstream has begun and does not stand yet."""
        return (
            connection.tls
            and connection.timestamp_tls_setup is None
            and connection is not self.client
        )

    async def _wait_for_upstream(self) -> None:
        """Read no more from a client that is far ahead of an upstream which is being connected.

        Layers keep all that they are given meanwhile: without this a body of any length. An end of
        the client is seen once the upstream is there, or is not (``connect_seconds``).
        """
        while any(
            transport.writer is None or self._shakes_hands(connection)
            for connection, transport in self.transports.items()
        ):
            client = self.transports.get(self.client)
            if client is None or client.handler is not asyncio.current_task():
                return
            self._ahead += 1
            if self._ahead <= READS_AHEAD:
                return
            await asyncio.sleep(0.01)
        self._ahead, self._opening = 0, False


def _opened(outer: Layer) -> Layer | None:
    """Return the layer under a CONNECT that stands; None while others have something to do yet."""
    http_layer = outer.context.layers[-1]
    if not isinstance(http_layer, HttpLayer) or len(http_layer.connections) != 1:
        return None  # a plain call before the CONNECT has left a connection to its upstream
    (connection,) = http_layer.connections.values()
    if not isinstance(connection, Http1Server) or connection.state != connection.passthrough:
        return None
    if http_layer.command_sources or len(http_layer.streams) != 1:
        return None
    (stream,) = http_layer.streams.values()
    return stream.child_layer


_arguments: dict[type, str] = {}


def _argument(kind: type) -> str:
    """Return the name of a hook's only argument."""
    name = _arguments.get(kind)
    if name is None:
        name = _arguments[kind] = dataclasses.fields(kind)[0].name
    return name


async def _rest_of_hook(
    first: Any, functions: tuple[Callable[[Any], Any], ...], data: object
) -> None:
    """Await a hook function's result, then run the functions after it."""
    try:
        await first
        for function in functions:
            result = function(data)
            if result is not None and inspect.isawaitable(result):
                await result
    except exceptions.AddonHalt:
        return
    except Exception as error:  # noqa: BLE001 - as stock: an addon's error ends only its hook
        _hook_failed(error)


def _hook_failed(error: Exception) -> None:
    _mitmproxy_log.error("addon error", exc_info=error)
