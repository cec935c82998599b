"""Fixtures of the gateway's tests: providers in clear and over TLS, and a clean start for each test."""

from collections.abc import Generator, Iterator

import pytest

from tests.proxy.gateway_process import LISTENER, started
from tests.support.provider import provider
from tests.support.tls import Tls, tls
from tests.support.upstream import Upstream

__all__ = ["Tls", "tls"]


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """Run a provider that answers every dialect, in clear; a module may have another of this name."""
    with Upstream(provider) as server:
        yield server


@pytest.fixture(scope="module")
def secure(tls: Tls) -> Iterator[Upstream]:
    """Run a provider that answers every dialect, over TLS."""
    with Upstream(provider, tls=tls.context) as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def mitmproxy_listener() -> Iterator[None]:
    """Let gateways that do not say it listen by mitmproxy; those of tests/proxy/plain do not."""
    before = LISTENER.get()
    LISTENER.set("mitmproxy")
    yield
    LISTENER.set(before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Take what a failed test left in the spools, or the next test of its module would fail too."""
    report = yield
    if report.when == "call" and report.failed:
        for gateway in started:
            if gateway.runs:
                gateway.records(10**6, seconds=1.0)
    return report
