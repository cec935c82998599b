"""Connections to upstreams: which are kept, for how long, and how a name with two addresses is reached."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, cast

import pytest
import uvloop

from proxy.config import GatewayConfig
from proxy.plain import connection, upstreams
from proxy.plain.listener import PlainListener
from proxy.plain.upstreams import Origin, UpstreamConnection, UpstreamPool
from proxy.routes.router import Reachability, Router
from tests.support.tls import Tls


@asynccontextmanager
async def pool_and_upstream(
    host: str = "127.0.0.1",
) -> AsyncIterator[tuple[UpstreamPool, Origin, list[asyncio.StreamWriter]]]:
    """Give a pool, where an upstream listens on 127.0.0.1, and what it has accepted."""
    accepted: list[asyncio.StreamWriter] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    router = Router(GatewayConfig(connect_seconds=10))
    pool = UpstreamPool(router, Reachability(router), None)
    try:
        yield pool, (b"http", host, port), accepted
    finally:
        pool.close()
        for writer in accepted:
            writer.close()
        server.close()


async def until(done: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(30):
        while not done():  # noqa: ASYNC110 - what is waited for is a state of the connection
            await asyncio.sleep(0.01)


def no_delay(transport: Any) -> bool:
    opened = transport.get_extra_info("socket")
    return bool(opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


def test_the_connection_used_last_is_used_again() -> None:
    async def main() -> None:
        async with pool_and_upstream() as (pool, origin, _):
            first, second = await pool.connect(origin), await pool.connect(origin)
            first.release()
            second.release()
            pool.sweep()
            assert pool.take(origin) is second
            assert pool.take(origin) is first
            assert pool.take(origin) is None

    asyncio.run(main())


def test_what_was_idle_for_too_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with pool_and_upstream() as (pool, origin, _):
            kept = await pool.connect(origin)
            kept.release()
            monkeypatch.setattr(upstreams, "IDLE_SECONDS", -1.0)
            pool.sweep()
            assert kept.transport.is_closing()
            assert pool.take(origin) is None

    asyncio.run(main())


def test_an_old_connection_takes_no_new_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with pool_and_upstream() as (pool, origin, _):
            monkeypatch.setattr(upstreams, "OLDEST_SECONDS", -1.0)
            old = await pool.connect(origin)
            old.release()
            assert old.transport.is_closing()
            assert pool.take(origin) is None

    asyncio.run(main())


def test_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with pool_and_upstream() as (pool, origin, _):
            monkeypatch.setattr(upstreams, "MOST_IDLE", 1)
            first, second = await pool.connect(origin), await pool.connect(origin)
            first.release()
            second.release()
            assert second.transport.is_closing()
            assert pool.take(origin) is first

    asyncio.run(main())


def test_an_upstream_that_has_not_read_all_takes_no_new_call() -> None:
    async def main() -> None:
        async with pool_and_upstream() as (pool, origin, accepted):
            first = await pool.connect(origin)
            await until(lambda: bool(accepted))
            accepted[0].transport.pause_reading()  # type: ignore[attr-defined]
            first.transport.write(b"x" * 32_000_000)
            first.release()
            assert pool.take(origin) is None
            assert first.transport.is_closing()

    uvloop.run(main())


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["end", "unasked"])
def test_an_upstream_that_ends_or_speaks_unasked_is_left(sent: bytes) -> None:
    async def main() -> None:
        async with pool_and_upstream() as (pool, origin, accepted):
            kept = await pool.connect(origin)
            kept.release()
            await until(lambda: bool(accepted))
            if sent:
                accepted[0].write(sent)
            else:
                accepted[0].close()
            await until(kept.transport.is_closing)
            assert pool.take(origin) is None

    asyncio.run(main())


def test_a_new_connection_resumes_the_tls_session_of_the_last(tls: Tls) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(100):
            resumed = writer.get_extra_info("ssl_object").session_reused
            writer.write(b"resumed" if resumed else b"fresh")
        writer.close()

    async def answer_on(opened: UpstreamConnection) -> bytes:
        heard = Receiver()
        opened.caller = heard
        opened.transport.write(b"who am I?")
        await until(lambda: bool(heard.data))
        return heard.data

    async def main() -> None:
        server = await asyncio.start_server(accept, "localhost", 0, ssl=tls.context)
        origin = b"https", "localhost", server.sockets[0].getsockname()[1]
        router = Router(GatewayConfig(connect_seconds=10))
        pool = UpstreamPool(router, Reachability(router), tls.roots)
        first, second = await pool.connect(origin), await pool.connect(origin)
        assert await answer_on(first) == await answer_on(second) == b"fresh"
        first.release()
        third = await pool.connect(origin)
        assert await answer_on(third) == b"resumed"
        pool.close()
        server.close()

    uvloop.run(main())


class Receiver:
    """Takes what an upstream says."""

    data = b""

    def response_data(self, data: bytes) -> None:
        """Take it."""
        self.data += data

    def upstream_lost(self, *, broken: bool) -> None:
        """Nobody asks."""

    def upstream_full(self, *, full: bool) -> None:
        """Nobody asks."""


@asynccontextmanager
async def listening(
    pool: UpstreamPool, idle_seconds: float = 60
) -> AsyncIterator[tuple[PlainListener, asyncio.StreamReader]]:
    """Give a listener, and what a client hears that has connected to it."""
    nothing = cast(Any, None)
    listener = PlainListener(
        nothing,
        refusals=nothing,
        endpoints=nothing,
        recorder=None,
        pool=pool,
        idle_seconds=idle_seconds,
        handler=nothing,
    )
    with socket.create_server(("127.0.0.1", 0)) as bound:
        await listener.start([bound])
        reader, writer = await asyncio.open_connection(*bound.getsockname())
        await until(lambda: bool(listener.connections))
        yield listener, reader
        writer.close()
        await listener.close()


def test_small_writes_go_at_once_both_ways() -> None:
    async def main() -> None:
        async with pool_and_upstream() as (pool, origin, _), listening(pool) as (listener, _):
            assert no_delay((await pool.connect(origin)).transport)
            assert all(no_delay(each.transport) for each in listener.connections)

    asyncio.run(main())


@pytest.mark.parametrize("limit", ["idle", "stranger"])
def test_who_says_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    async def main() -> None:
        idle = 0.1 if limit == "idle" else 60
        if limit == "stranger":
            monkeypatch.setattr(connection, "STRANGER_SECONDS", 0.1)
        async with (
            pool_and_upstream() as (pool, _, _),
            listening(pool, idle) as (listener, reader),
            asyncio.timeout(30),
        ):
            with suppress(ConnectionError):
                assert await reader.read() == b""
            assert not listener.connections

    asyncio.run(main())


@pytest.mark.parametrize("silent", [True, False], ids=["silent", "refusing"])
def test_a_name_whose_first_address_fails_is_reached_by_its_second(
    silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with pool_and_upstream("two.test") as (pool, origin, _), asyncio.timeout(9):
            with first_address(monkeypatch, "127.0.0.2", origin[2], silent=silent):
                reached = await pool.connect(origin)
            assert reached.transport.get_extra_info("peername")[0] == "127.0.0.1"

    asyncio.run(main())


@contextmanager
def first_address(
    patch: pytest.MonkeyPatch, host: str, port: int, *, silent: bool
) -> Iterator[None]:
    """Let names lead here first and to 127.0.0.1 then; nobody listens here, or nobody answers."""
    kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")

    def two(*_: object, **__: object) -> list[Any]:
        return [(*kind, (host, port)), (*kind, ("127.0.0.1", port))]

    patch.setattr(socket, "getaddrinfo", two)
    with ExitStack() as opened:
        if silent:
            opened.enter_context(socket.create_server((host, port), backlog=0))
            for _ in range(4):  # its queue is full then: whoever comes hears nothing
                one = opened.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex((host, port))
        yield
