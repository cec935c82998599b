"""Speed overrides of mitmproxy, for exactly the version they were measured with.

Each override does what stock code does, with less work per request: hooks that are not
coroutines run in place instead of in a task of their own, what one event makes to send goes out
in one write, options are read without deep copies, headers are looked up without decoding all of
them, and checks that only ``python -O`` would remove are removed. With another version, or
switched off, stock code runs; the tests of the gateway run both ways.
"""

import asyncio
import copy
import dataclasses
import inspect
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from mitmproxy import version

MITMPROXY_VERSION = "12.2.3"


def fits() -> bool:
    """Tell whether the overrides were made for the installed mitmproxy."""
    return version.VERSION == MITMPROXY_VERSION


def _import_addons_one_by_one() -> None:
    """Keep the package of addons from importing them all: a web framework and LDAP among them."""
    if fits() and "mitmproxy.addons" not in sys.modules:
        package = ModuleType("mitmproxy.addons")
        package.__path__ = [str(Path(version.__file__).with_name("addons"))]
        sys.modules[package.__name__] = package


_import_addons_one_by_one()

# ruff: noqa: E402 - what follows imports some of them
from mitmproxy import exceptions, http, optmanager
from mitmproxy.addonmanager import traverse
from mitmproxy.connection import Connection
from mitmproxy.master import Master
from mitmproxy.proxy import commands, context, events, layers, mode_servers, server
from mitmproxy.proxy.layers import modes, tcp, tls, websocket
from mitmproxy.proxy.layers.http import _http1
from mitmproxy.utils import asyncio_utils

_log = logging.getLogger(__name__)
_mitmproxy_log = logging.getLogger("mitmproxy.fastpath")
_IMMUTABLE = (bool, int, float, str, bytes, type(None))
_missing = object()

type HookTable = dict[str, tuple[Callable[[Any], Any], ...]]


def new_event_loop(enabled: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the event loop: uvloop where it is installed, None for asyncio's own."""
    if not enabled:
        return None
    try:
        import uvloop
    except ImportError:
        return None
    make: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return make


class _Patches:
    """Attributes that were replaced, so that they can be put back."""

    def __init__(self) -> None:
        self._saved: list[tuple[object, str, object]] = []

    def set(self, owner: object, name: str, value: object) -> None:
        """Replace an attribute."""
        self._saved.append((owner, name, vars(owner).get(name, _missing)))
        setattr(owner, name, value)

    def revert(self) -> None:
        """Put everything back, latest first."""
        while self._saved:
            owner, name, value = self._saved.pop()
            if value is _missing:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


_patches = _Patches()


class Pending(Protocol):
    """What bytes for clients must wait for: nobody gets what the spool does not know."""

    @property
    def waiting(self) -> Sequence[object]:
        """Something, where bytes for clients must be held."""

    def hold(self, release: Callable[[], None]) -> None:
        """Call ``release``, which sends held bytes, once nothing waits any more."""

    def settle(self) -> None:
        """Do at once what is waited for."""


class _Nothing:
    """Stands where nothing is waited for."""

    waiting = ()

    def hold(self, release: Callable[[], None]) -> None:
        """Hold nothing."""
        release()

    def settle(self) -> None:
        """There is nothing to do."""


def apply(master: Master, *, enabled: bool, pending: Pending | None = None) -> bool:
    """Put the overrides in place; tell whether they are.

    Args:
        master: its addons' hooks are looked up now, once.
        enabled: without it nothing is changed.
        pending: what bytes for clients wait for.
    """
    if not enabled:
        return False
    if not fits():
        _log.warning(
            "fast path off: made for mitmproxy %s, found %s; the gateway is slower, nothing else",
            MITMPROXY_VERSION,
            version.VERSION,
        )
        return False
    revert()
    about: dict[str, object] = {"hooks": _hook_table(master), "__module__": __name__}
    if pending is not None:
        about["pending"] = pending
    handler = type("Handler", (FastHandler,), about)
    _patches.set(mode_servers, "ProxyConnectionHandler", handler)
    _patches.set(optmanager._Option, "current", _current)
    _patches.set(http.Headers, "get_all", _get_all)
    _patches.set(http.Headers, "get", _get)
    _patches.set(http.Headers, "__contains__", _contains)
    _patches.set(context.Context, "fork", _fork)
    if "__post_init__" in vars(http.MessageData):
        _patches.set(http.MessageData, "__post_init__", _no_check)
    for owner, name, function in _checked_functions():
        _patches.set(owner, name, function)
    return True


def revert() -> None:
    """Take the overrides out."""
    _patches.revert()


def _hook_table(master: Master) -> HookTable:
    """Return for each hook the functions of all addons, in order."""
    table: dict[str, list[Callable[[Any], Any]]] = {}
    walk: Callable[[Any], Iterator[Any]] = traverse
    for addon in walk(master.addons.chain):
        for name in dir(addon):
            if name.startswith("_"):
                continue
            function = getattr(addon, name, None)
            if callable(function):
                table.setdefault(name, []).append(function)
    return {name: tuple(functions) for name, functions in table.items()}


class FastHandler(mode_servers.ProxyConnectionHandler):
    """Handles one client connection; all its events pass through one queue, in order."""

    hooks: HookTable = {}  # noqa: RUF012 - set by the subclass that apply() makes

    pending: Pending = _Nothing()
    """What bytes for clients wait for; set by the subclass too."""

    def __init__(self, *arguments: Any) -> None:
        init: Callable[..., None] = super().__init__
        init(*arguments)
        self._queue: deque[events.Event] = deque()
        self._busy = False
        self._unsent: dict[Connection, list[bytes]] = {}
        self._held: list[bytes] = []
        """For the client, until the spool knows of what they belong to."""

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

    def _start_hook(self, hook: commands.StartHook) -> None:
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
                half = isinstance(command, commands.CloseTcpConnection) and command.half_close
                self.close_connection(command.connection, half)
        else:
            raise TypeError(f"unexpected command: {type(command).__name__}")

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
        """Wait only for writers that have something left to write."""
        for transport in self.transports.values():
            writer = transport.writer
            if isinstance(writer, asyncio.StreamWriter):
                if not (writer.is_closing() or writer.transport.get_write_buffer_size()):
                    continue
            elif writer is None:
                continue
            drain: Callable[[], Any] = super().drain_writers
            await drain()
            return


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


def _current(option: Any) -> Any:
    """Read an option; only what could be changed in place is copied."""
    value = option._default if option.value is optmanager.unset else option.value
    return value if isinstance(value, _IMMUTABLE) else copy.deepcopy(value)


def _values(headers: http.Headers, name: str | bytes) -> list[bytes]:
    key = (
        name.lower() if isinstance(name, bytes) else name.lower().encode("utf-8", "surrogateescape")
    )
    length = len(key)
    return [v for n, v in headers.fields if len(n) == length and (n == key or n.lower() == key)]


def _get_all(headers: http.Headers, name: str | bytes) -> list[str]:
    return [value.decode("utf-8", "surrogateescape") for value in _values(headers, name)]


def _get(headers: http.Headers, name: str | bytes, default: Any = None) -> Any:
    values = _values(headers, name)
    if not values:
        return default
    return b", ".join(values).decode("utf-8", "surrogateescape")


def _contains(headers: http.Headers, name: object) -> bool:
    return isinstance(name, str | bytes) and bool(_values(headers, name))


def _fork(original: context.Context) -> context.Context:
    """Fork a context without making a server connection that is thrown away at once."""
    forked = context.Context.__new__(context.Context)
    forked.client = original.client
    forked.options = original.options
    forked.server = original.server
    forked.layers = original.layers.copy()
    return forked


def _no_check(_: object) -> None:
    """Stand for a type check of values that mitmproxy's own parser made."""


def _checked_functions() -> Iterator[tuple[type, str, object]]:
    """Yield the functions that only check an event's type before they call the real one."""
    for module in (layers.http, _http1, modes, tcp, tls, websocket):
        for owner in vars(module).values():
            if isinstance(owner, type):
                for ancestor in owner.__mro__:
                    yield from _checked_methods(ancestor)


def _checked_methods(owner: type) -> Iterator[tuple[type, str, object]]:
    for name, function in list(vars(owner).items()):
        code = getattr(function, "__code__", None)
        real = getattr(function, "__wrapped__", None)
        if code is not None and code.co_name == "_check_event_type" and real is not None:
            yield owner, name, real
