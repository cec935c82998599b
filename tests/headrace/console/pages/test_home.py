"""Home: what came of late is told apart from what never came."""

from headrace.console.page import Console
from tests.headrace.console.conftest import client_of


def test_home_tells_an_agent_that_rests_from_one_that_was_never_pointed_here(
    console: Console,
) -> None:
    rests = client_of(console, ("viewer", "acme")).get("/home").text
    assert "2026-11-01" in rests
    assert "No exchange was captured in these days." in rests
    assert "headrace env" not in rests
    assert "headrace env" in client_of(console, ("viewer", "nobody")).get("/home").text
