"""Privacy: consent of one person, in no URL and under no name; certificates and the audit log, verified."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.app.context import AppContext
from headrace.console.page import Console
from tests.headrace.console.conftest import SAME, client_of, console_of
from tests.train.registry.test_versions import learned_from
from tests.train.substrate.test_build import withdraw

MAIL = "jo.marsh@example.org"


def send(console: Console, tenant: str = "acme", **sent: str) -> tuple[int, Any]:
    client = client_of(console, ("privacy", tenant), name="petra")
    answer = client.post("/privacy.json", data=sent, headers=SAME)
    return answer.status_code, answer.json()


def test_consent_is_recorded_under_a_pseudonym_and_in_the_name_of_who_did(console: Console) -> None:
    granted = {"eval": "1", "reference": "T-1"}
    assert send(console, do="grant", subject=MAIL, **granted)[0] == 200
    status, told = send(console, do="withdraw", subject=MAIL, eval="1")
    assert status == 200
    assert [one["granted"] for one in told["person"]["entries"]][:1] == [False]
    assert told["person"]["subject"].startswith("subject_")
    assert MAIL not in str(told)
    assert MAIL not in str([*console.running.audit.entries()])
    noted = [(one.actor, one.action) for one in console.running.audit.entries()]
    assert ("petra", "consent.withdrawn") in noted
    assert ("petra", "consent.read") in noted
    assert send(console, do="grant", subject=MAIL)[0] == 400, "no purpose was chosen"
    assert send(console, do="show", subject="*")[0] == 400
    assert send(console, tenant="*", do="show", subject=MAIL)[0] == 400, "whose data?"


def test_a_withdrawal_notes_in_the_audit_log_what_serves_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The models rest on what another person took back a moment ago; any withdrawal tells of them."""
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    _, lake = learned_from(tmp_path, 1, 2)
    withdraw(lake, "b2:subject-2")
    running = AppContext(tmp_path, debug=False)
    running.home.create()
    with closing(console_of(running)) as console:
        assert send(console, do="withdraw", subject=MAIL, eval="1")[0] == 200
    noted = [(one.actor, one.action, one.subject) for one in running.audit.entries()]
    assert ("petra", "model.stale", "shop@0002") in noted


def test_an_erasure_is_looked_at_and_nothing_goes(console: Console) -> None:
    status, told = send(console, do="preview", subject=MAIL)
    assert (status, told["person"]["erasure_would_take"]["trajectories"]) == (200, 0)


def test_the_audit_log_is_verified_for_those_who_see_every_tenant(console: Console) -> None:
    client = client_of(console, ("privacy", "*"), name="petra")
    told = client.get("/privacy.json").json()
    assert told["audit"]["problem"] is None
    assert told["audit"]["anchor"].startswith(f"{told['audit']['entries']}:")
    assert client_of(console, ("privacy", "acme")).get("/privacy.json").json()["audit"] is None


def test_the_whole_audit_log_is_verified_when_somebody_asks(console: Console) -> None:
    client = client_of(console, ("privacy", "*"), name="petra")
    client.get("/privacy.json")
    log = console.running.home.audit / "audit.jsonl"
    intact = log.read_bytes()
    log.write_bytes(intact.replace(b'"sequence": 1,', b'"sequence": 7,', 1))
    assert client.get("/privacy.json").json()["audit"]["problem"] is None
    sent = {"data": {"do": "verify"}, "headers": SAME}
    assert "audit.jsonl:1" in client.post("/privacy.json", **sent).json()["audit"]["problem"]
    assert 'role="alert"' in client.get("/privacy").text
    log.write_bytes(intact)
    told = client.post("/privacy.json", **sent).json()["audit"]
    assert (told["problem"], told["checked_at"]) == (None, told["whole_checked_at"])
    assert len(told["latest"]) == min(50, told["entries"])
