"""Home: what came of late is told apart from what never came."""

from headrace.console.page import Console
from headrace.services.audit_check import check_whole
from tests.headrace.console.conftest import client_of, held_call


def test_home_tells_an_agent_that_rests_from_one_that_was_never_pointed_here(
    console: Console,
) -> None:
    rests = client_of(console, ("viewer", "acme")).get("/home").text
    assert "2026-11-01" in rests
    assert "No exchange was captured in these days." in rests
    assert "headrace env" not in rests
    assert "headrace env" in client_of(console, ("viewer", "nobody")).get("/home").text


def test_home_tells_when_the_audit_log_was_found_intact(console: Console) -> None:
    viewer = client_of(console, ("viewer", "*"))
    check_whole(console.running)
    audit = viewer.get("/home.json").json()["machine"]["audit"]
    assert (audit["is_intact"], audit["whole_checked_at"][:2]) == (True, "20")
    assert "all of it verified at" in viewer.get("/home").text
    tenant = client_of(console, ("admin", "acme"))
    assert tenant.get("/home.json").json()["machine"] is None


def test_home_tells_what_waits_for_a_person(console: Console) -> None:
    operator = client_of(console, ("operator", "*"), name="olga")
    before = operator.get("/home.json").json()["waiting"]["calls"]["waiting"]
    held_call(console.running, tool="ship")
    told = operator.get("/home.json").json()["waiting"]
    assert (told["calls"]["waiting"], told["calls"]["oldest"][:2]) == (before + 1, "20")
    assert f"Tool calls that wait: {before + 1}" in operator.get("/home").text
    stranger = client_of(console, ("operator", "globex"))
    assert stranger.get("/home.json").json()["waiting"]["calls"]["waiting"] == 0
