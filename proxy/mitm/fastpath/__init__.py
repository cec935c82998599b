"""Speed overrides of mitmproxy, for exactly the version they were measured with.

Each override does what stock code does, with less work per request:

- hooks that are not coroutines run in place instead of in a task of their own;
- what one event makes to send goes out in one write;
- options are read without deep copies;
- headers are looked up without decoding all of them;
- checks that only ``python -O`` would remove are removed.

With another version, or switched off, stock code runs; the tests of the gateway run both ways.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

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
from mitmproxy import connection, http, optmanager
from mitmproxy.addonmanager import traverse
from mitmproxy.master import Master
from mitmproxy.proxy import commands, context, layer, layers, mode_servers
from mitmproxy.proxy.layers import tls

from proxy.mitm.fastpath import generators, lookups
from proxy.mitm.fastpath.handler import FastHandler, HookTable, PendingWrites

_log = logging.getLogger(__name__)
_missing = object()


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


def apply(master: Master, *, enabled: bool, pending: PendingWrites | None = None) -> bool:
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
    _patches.set(optmanager._Option, "current", lookups.current)
    _patches.set(commands.StartHook, "__new__", staticmethod(lookups.new_hook))
    _patches.set(http.Headers, "get_all", lookups.get_all)
    _patches.set(http.Headers, "get", lookups.get)
    _patches.set(http.Headers, "__contains__", lookups.contains)
    _patches.set(context.Context, "fork", lookups.fork)
    _patches.set(connection.Connection, "__eq__", lookups.same)
    _patches.set(layer.Layer, "handle_event", generators.handle_event)
    _patches.set(layers.HttpLayer, "event_to_child", generators.event_to_child)
    _patches.set(tls.TLSLayer, "_handle_event", generators.tls_event)
    _patches.set(tls.ClientTLSLayer, "event_to_child", generators.event_to_tls_client)
    _patches.set(tls.ServerTLSLayer, "event_to_child", generators.event_to_tls_server)
    _patches.set(tls.TLSLayer, "tls_interact", generators.tls_interact)
    if "__post_init__" in vars(http.MessageData):
        _patches.set(http.MessageData, "__post_init__", lookups.no_check)
    for owner, name, function in lookups.checked_functions():
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


__all__ = [
    "MITMPROXY_VERSION",
    "FastHandler",
    "PendingWrites",
    "apply",
    "fits",
    "new_event_loop",
    "revert",
]
