"""A certificate authority of the tests' own, for upstreams that speak TLS."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest

from examples.practice.certificate import make_certificate


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
