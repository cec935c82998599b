"""Fixtures of the gateway's tests: certificates for a TLS upstream, and a clean start for each test."""

from collections.abc import Generator, Iterator

import pytest

from tests.proxy.gateway_process import LISTENER, started
from tests.support.tls import Tls, tls

__all__ = ["Tls", "tls"]


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
