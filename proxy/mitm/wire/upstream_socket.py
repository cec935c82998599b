"""Connections to upstreams: stock code has the event loop look names up, a few at a time."""

import asyncio
from types import ModuleType
from typing import Any

from proxy.routes.name_lookups import opened_socket


async def open_connection(
    host: str, port: int, *, local_addr: Any = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection, as asyncio's function does; a name that hangs holds up no other."""
    if local_addr is not None:
        return await asyncio.open_connection(host, port, local_addr=local_addr)
    opened = await opened_socket(host, port)
    try:
        return await asyncio.open_connection(sock=opened)
    except BaseException:
        opened.close()
        raise


def connecting_asyncio() -> ModuleType:
    """Return asyncio as mitmproxy's connections see it: with this function in the other's place."""
    module = ModuleType(asyncio.__name__, asyncio.__doc__)
    vars(module).update(vars(asyncio))
    vars(module)["open_connection"] = open_connection
    return module
