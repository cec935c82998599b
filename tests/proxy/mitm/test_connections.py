"""Time limits of connections: both halves end in time, and the upstream is passed over a while."""

import asyncio
import time
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.config import GatewayConfig
from proxy.routes.router import Reachability, Router

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of mitmproxy's own imports
    from mitmproxy.connection import Server

    from proxy.mitm.connections import ConnectTimes

ADDRESS = ("up.example", 443)


def router() -> Router:
    upstream = [{"url": "https://up.example", "connect_seconds": 0.05}, {"url": "http://b.example"}]
    routes = [{"name": "a", "upstream": upstream}, {"name": "b", "upstream": "https://up.example"}]
    return Router(GatewayConfig.model_validate({"routes": routes, "connect_seconds": 30}))


def connect_times(known: Router, handlers: Any) -> ConnectTimes:
    return ConnectTimes(known, handlers, Reachability(known))


def shunned(known: Router) -> bool:
    return any(
        target.shunned_until > time.monotonic()
        for plan in known.plans
        for target in plan.targets
        if target.upstream.host == "up.example"
    )


def data(*, tls: bool) -> Any:
    server = Server(address=ADDRESS)
    server.tls = tls
    return SimpleNamespace(server=server, conn=server)


def test_an_attempt_is_cancelled_when_its_time_is_over() -> None:
    async def attempt() -> None:
        times = connect_times(router(), dict)
        times.server_connect(data(tls=False))
        await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(attempt())


def test_a_connection_in_time_lives_on() -> None:
    async def attempt() -> bool:
        known = router()
        known.reached(ADDRESS, well=False)
        times, hook = connect_times(known, dict), data(tls=False)
        times.server_connect(hook)
        times.server_connected(hook)
        await asyncio.sleep(0.1)
        return shunned(known)

    assert asyncio.run(attempt()) is False


def test_the_handshake_has_what_time_is_left() -> None:
    async def attempt() -> list[str]:
        told: list[str] = []
        hook = data(tls=True)
        transport = SimpleNamespace(handler=SimpleNamespace(cancel=told.append))
        handler = SimpleNamespace(transports={hook.server: transport})
        times = connect_times(router(), lambda: {1: handler})
        times.server_connect(hook)
        times.server_connected(hook)
        while not told:  # noqa: ASYNC110 - set by a timer
            await asyncio.sleep(0.01)
        return told

    assert asyncio.run(attempt()) == ["the TLS handshake takes too long"]


@pytest.mark.parametrize("failing", ["server_connect_error", "tls_failed_server"])
def test_every_route_passes_over_what_could_not_be_reached(failing: str) -> None:
    async def attempt() -> list[bool]:
        known = router()
        times, hook = connect_times(known, dict), data(tls=True)
        getattr(times, failing)(hook)
        before = [
            target.shunned_until > time.monotonic()
            for plan in known.plans
            for target in plan.targets
        ]
        times.tls_established_server(hook)
        return [*before, shunned(known)]

    assert asyncio.run(attempt()) == [True, False, True, False]


def test_the_log_says_once_why_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    async def attempts() -> None:
        times = connect_times(router(), dict)
        for why in ("certificate verify\nfailed", "another reason"):
            hook = data(tls=True)
            hook.server.error = why
            times.tls_failed_server(hook)
        elsewhere = data(tls=False)
        elsewhere.server.address = ("of-a-client.example", 443)
        times.server_connect_error(elsewhere)
        times.tls_established_server(data(tls=True))
        times.tls_established_server(data(tls=True))

    with caplog.at_level("WARNING", "proxy.mitm.connections"):
        asyncio.run(attempts())
    assert caplog.messages == [
        "upstream up.example:443 of a, b cannot be reached: certificate verify failed",
        "upstream up.example:443 is reached again",
    ]
