"""Logs: what mitmproxy says is counted and located, never repeated."""

import io
import logging
from collections.abc import Iterator

import pytest

from proxy.mitm.logs import muffle, unmuffle
from proxy.telemetry.counters import Counters

SECRET = "Bearer sk-secret jane.doe@example.com"


@pytest.fixture
def heard() -> Iterator[io.StringIO]:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    root = logging.getLogger()
    root.addHandler(handler)
    yield out
    root.removeHandler(handler)
    unmuffle()


@pytest.mark.parametrize("name", ["mitmproxy", "mitmproxy.proxy.server", "asyncio", "hpack", "h2"])
def test_texts_and_errors_of_theirs_go_nowhere(heard: io.StringIO, name: str) -> None:
    counters = Counters()
    muffle(counters)
    logger = logging.getLogger(name)
    logger.warning("request: %s", SECRET)
    try:
        raise ValueError(SECRET)
    except ValueError:
        logger.exception(SECRET)
    logger.info(SECRET)
    assert counters.noise == 2
    assert "sk-secret" not in heard.getvalue()
    assert f"WARNING at {name}" in heard.getvalue()
    assert "(ValueError)" in heard.getvalue()


def test_only_the_first_hundred_leave_a_line(heard: io.StringIO) -> None:
    counters = Counters()
    muffle(counters)
    for _ in range(150):
        logging.getLogger("mitmproxy").warning(SECRET)
    assert counters.noise == 150
    assert len(heard.getvalue().splitlines()) == 100


def test_the_loggers_are_given_back(heard: io.StringIO) -> None:
    muffle(Counters())
    unmuffle()
    logging.getLogger("asyncio").warning("back")
    assert heard.getvalue() == "back\n"
