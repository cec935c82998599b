"""Fixtures of the gateway's tests: certificates for a TLS upstream, and a clean start for each test."""

import ssl
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from examples.practice.certificate import make_certificate
from tests.proxy.running import started


@dataclass(frozen=True)
class Tls:
    """A TLS context for an upstream named localhost, and the file that makes it trusted."""

    context: ssl.SSLContext
    roots: Path
    cert: Path
    key: Path


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """Return a server context for localhost under an authority of the tests' own."""
    files = make_certificate(tmp_path_factory.mktemp("upstream-ca"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    return Tls(context, files.ca, files.cert, files.key)


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
