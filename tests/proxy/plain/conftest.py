"""All gateways of this folder's tests serve their base-URL port by the plain listener."""

from collections.abc import Iterator

import pytest

from tests.proxy.gateway_process import LISTENER


@pytest.fixture(scope="module", autouse=True)
def plain() -> Iterator[None]:
    """Let gateways that do not say it listen plainly."""
    before = LISTENER.get()
    LISTENER.set("plain")
    yield
    LISTENER.set(before)
