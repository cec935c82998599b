"""Names of upstreams: one that cannot be looked up holds up no other, on either listener."""

import asyncio
import socket
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from proxy.config import GatewayConfig
from proxy.plain.upstreams import UpstreamPool
from proxy.routes import name_lookups
from proxy.routes.name_lookups import NameLookups
from proxy.routes.router import Reachability, Router

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of mitmproxy's own imports
    from mitmproxy.proxy import server

    from proxy.mitm import wire

type Connect = Callable[[str, int], Awaitable[None]]

SLOW = 40
"""More names than any event loop has threads for."""


class NameServer:
    """Answers for ``localhost``; other names wait until it is let go."""

    def __init__(self) -> None:
        self._answers = socket.getaddrinfo
        self._open = threading.Event()
        self.asked: list[str] = []

    def getaddrinfo(self, host: str, *told: Any, **named: Any) -> Any:
        if named.get("flags") or host == "localhost":
            return self._answers(host, *told, **named)
        self.asked.append(host)
        self._open.wait()
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    def let_go(self) -> None:
        self._open.set()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    made = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", made.getaddrinfo)
    yield made
    made.let_go()


def plain() -> Connect:
    router = Router(GatewayConfig(connect_seconds=60))
    pool = UpstreamPool(router, Reachability(router), None)

    async def connect(host: str, port: int) -> None:
        (await pool.connect((b"http", host, port))).close()

    return connect


def mitmproxy() -> Connect:
    wire.install()

    async def connect(host: str, port: int) -> None:
        _, writer = await server.asyncio.open_connection(host, port)  # type: ignore[attr-defined]
        writer.close()
        await writer.wait_closed()

    return connect


@pytest.mark.parametrize("listener", [plain, mitmproxy])
def test_names_that_hang_hold_up_no_other(
    names: NameServer, listener: Callable[[], Connect]
) -> None:
    async def main(port: int) -> None:
        connect = listener()
        slow = [asyncio.ensure_future(connect(f"{one}.test", port)) for one in range(SLOW)]
        async with asyncio.timeout(30):
            while len(names.asked) < SLOW:  # noqa: ASYNC110 - set by threads
                await asyncio.sleep(0.01)
            await connect("localhost", port)
        assert not any(one.done() for one in slow)
        names.let_go()
        failed = await asyncio.gather(*slow, return_exceptions=True)
        assert all(isinstance(one, OSError) for one in failed)

    with socket.create_server(("127.0.0.1", 0)) as there:
        asyncio.run(main(there.getsockname()[1]))


def test_a_name_is_looked_up_once_at_a_time(names: NameServer) -> None:
    async def main() -> None:
        lookups = NameLookups()
        first, second = (asyncio.ensure_future(lookups.addresses("a.test", 80)) for _ in range(2))
        while not names.asked:  # noqa: ASYNC110 - set by a thread
            await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.wait([first])
        names.let_go()
        with pytest.raises(OSError, match="no such name"):
            await second
        assert names.asked == ["a.test"]
        with pytest.raises(OSError, match="no such name"):
            await lookups.addresses("a.test", 80)
        assert names.asked == ["a.test", "a.test"]

    asyncio.run(main())


def test_so_many_names_at_once(names: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(name_lookups, "MOST_AT_ONCE", 1)
        lookups = NameLookups()
        open_one = asyncio.ensure_future(lookups.addresses("a.test", 80))
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="too many names"):
            await lookups.addresses("b.test", 80)
        assert (await lookups.addresses("127.0.0.1", 80))[0][4] == ("127.0.0.1", 80)
        names.let_go()
        with pytest.raises(OSError, match="no such name"):
            await open_one

    asyncio.run(main())


@pytest.mark.parametrize("host", ["a" * 64 + ".test", "a..test", "\ud800.test"])
def test_what_is_no_name_cannot_be_reached(host: str) -> None:
    with pytest.raises(OSError, match="name"):
        asyncio.run(NameLookups().addresses(host, 80))
