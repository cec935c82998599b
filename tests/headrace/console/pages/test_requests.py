"""Requests: one asks on a page, another one approves on a page, and it is done once."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from governance.redact.pseudonym import subject_id
from governance.redact.reversible import seal
from headrace.app.context import AppContext
from headrace.app.master_key import subject_keys_of
from headrace.app.settings import ConsoleSettings
from headrace.console.page import Console
from headrace.console.sessions import SessionStore
from headrace.console.users import TrustedProxies, local_user
from headrace.services import four_eyes
from headrace.services.acts import REVEAL
from headrace.services.changes import model_registry
from headrace.services.request_store import ActRequest
from headrace.services.sql_server import sql_service
from tests.headrace.console.conftest import SAME, client_of, model_of
from tests.train.lakes import Session, lake_of


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    settings = {"policy": {"four_eyes": ["promote", "erase", "reveal"], "reveal_users": ["ida"]}}
    (tmp_path / "headrace.yaml").write_text(json.dumps(settings))
    lake_of(tmp_path / "lake", Session(1))
    running = AppContext(tmp_path, debug=False)
    model_of(running)
    service = sql_service(running.settings, running.home.create(), running.secrets, running.lake)
    made = Console(
        running,
        service,
        SessionStore.of(running.home.sessions, running.settings.console),
        TrustedProxies(ConsoleSettings()),
    )
    yield made
    made.close()


def request_of(client: Any) -> dict[str, Any]:
    rows = client.get("/requests.json").json()["rows"]
    assert len(rows) == 1, rows
    found: dict[str, Any] = rows[0]
    return found


def ended(client: Any) -> dict[str, Any]:
    """Wait until the request is done, or has failed."""
    deadline = time.monotonic() + 240
    while (found := request_of(client))["status"] in ("waiting", "approved"):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def test_two_people_promote(console: Console) -> None:
    ida = client_of(console, ("trainer", "*"), name="ida")
    oda = client_of(console, ("operator", "*"), name="oda")
    vera = client_of(console, ("viewer", "*"), name="vera")
    pia = client_of(console, ("privacy", "*"), name="pia")
    sent = {"name": "shop", "version": "0001", "change": "promote", "reason": "better"}
    page = ida.post("/models", data=sent, headers=SAME)
    assert "waits for a second person" in page.text
    assert model_registry(console.running, "test").live("shop") is None
    mine, hers = request_of(ida), request_of(oda)
    assert (mine["may_approve"], hers["may_approve"]) == (False, True)
    assert pia.get("/requests.json").json()["rows"] == [], "promotions are not for this role"
    decision = {"request": mine["request"], "do": "approve", "reason": "looked at it"}
    assert ida.post("/requests", data=decision, headers=SAME).status_code == 400
    assert vera.post("/requests", data=decision, headers=SAME).status_code == 403
    assert pia.post("/requests", data=decision, headers=SAME).status_code == 400
    assert oda.post("/requests", data=decision, headers=SAME).status_code == 200
    assert ended(ida)["outcome"] == {"serves": "shop@0001"}
    assert model_registry(console.running, "test").live("shop") is not None
    assert oda.post("/requests", data=decision, headers=SAME).status_code == 400


def test_two_people_erase(console: Console) -> None:
    ida = client_of(console, ("privacy", "acme"), name="ida")
    oda = client_of(console, ("admin", "*"), name="oda")
    sent = {"subject": "jo.frame@corp-mail.com", "do": "erase", "reference": "T-9"}
    assert "second person" in ida.post("/privacy", data=sent, headers=SAME).text
    assert not list(console.running.home.certificates.glob("*"))
    asked = request_of(oda)
    assert "jo.frame" not in json.dumps(asked)
    decision = {"request": asked["request"], "do": "approve", "reason": "T-9"}
    assert oda.post("/requests", data=decision, headers=SAME).status_code == 200
    assert ended(oda)["status"] == "done"
    assert len(list(console.running.home.certificates.glob("*.json"))) == 1


def test_a_value_is_for_the_eyes_of_who_asked(console: Console) -> None:
    app = console.running
    key = app.secrets.derive(b"pseudonym")
    value = "jo.frame@corp-mail.com"
    subject = subject_id(key, "acme", value)
    own = subject_keys_of(app.home, app.secrets)
    mark = seal(own.key(subject), "EMAIL_ADDRESS", value, "acme", subject)
    own.close()
    given = {"mark": mark, "reason": "T-1"}
    who = local_user("ida")
    made = four_eyes.perform(app, who, REVEAL, given, subject="EMAIL_ADDRESS", why="T-1")
    assert isinstance(made, ActRequest)
    ida = client_of(console, ("privacy", "*"), name="ida")
    oda = client_of(console, ("privacy", "*"), name="oda")
    do = {"request": made.request_id, "do": "run"}
    assert ida.post("/requests", data=do, headers=SAME).status_code == 400
    approve = {"request": made.request_id, "do": "approve", "reason": "T-1"}
    assert oda.post("/requests", data=approve, headers=SAME).status_code == 200
    assert value not in oda.post("/requests", data=do, headers=SAME).text
    assert value in ida.post("/requests", data=do, headers=SAME).text
    assert ida.post("/requests", data=do, headers=SAME).status_code == 400
    assert value not in ida.get("/requests").text
