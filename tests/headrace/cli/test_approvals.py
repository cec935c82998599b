"""``headrace approvals``: what waits, what it says, and what is decided."""

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.app.guard import approvals_of
from headrace.app.home import Home
from headrace.app.master_key import load_secrets
from headrace.cli import run
from proxy.guard.approvals import Approvals
from proxy.guard.rules import ActionRule, RequestedCall, Ruling
from tests.support.full_disk import full_disk


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create()


@pytest.fixture
def approvals(home: Home) -> Approvals:
    return approvals_of(home, load_secrets(home.secrets, create=True))


def ask(approvals: Approvals, amount: int) -> str:
    call = RequestedCall("pay", {"amount": amount}, tenant="acme")
    rule = ActionRule("payments", Ruling.HOLD)
    return approvals.ask(call, rule, key_id="k1", route="tools", step_id="01").approval_id


def test_calls_are_listed_shown_and_decided(
    home: Home, approvals: Approvals, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = ask(approvals, 1), ask(approvals, 2)

    def told(*arguments: str, code: int = 0) -> Any:
        assert run(["--home", str(home.root), "approvals", *arguments, "--json"]) == code
        return json.loads(capsys.readouterr().out or "null")

    rows = told("list")
    assert {row["approval"] for row in rows} == {first, second}
    assert {row["rule"] for row in rows} == {"payments"}
    assert "amount" not in json.dumps(rows)
    shown = told("show", first)
    assert (shown["tool"], shown["arguments"], shown["status"]) == ("pay", {"amount": 1}, "pending")
    assert told("approve", first, "--reason", "Known.")["status"] == "approved"
    assert told("deny", second)["status"] == "denied"
    assert told("list") == []
    assert "arguments" not in told("show", second)
    told("approve", second, code=2)
    told("show", "nosuch", code=2)
    told("list", "--status", "odd", code=2)
    lines = (home.audit / "audit.jsonl").read_text().splitlines()
    actions = [json.loads(line)["action"] for line in lines]
    assert actions == ["approval.read", "approval.approved", "approval.denied"]


def test_a_full_disk_is_no_fault_of_headrace(
    home: Home, approvals: Approvals, capsys: pytest.CaptureFixture[str]
) -> None:
    name = ask(approvals, 1)
    with full_disk():
        assert run(["--home", str(home.root), "approvals", "approve", name]) == 3
    assert "check the disk" in capsys.readouterr().err
    assert approvals.get(name).status == "pending"


def test_maintenance_lets_go_of_what_nobody_answered(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    key = load_secrets(home.secrets, create=True).derive(b"approvals")
    ask(Approvals(home.approvals, key, clock=lambda: time.time() - 86400), 1)
    assert run(["--home", str(home.root), "lake", "maintain", "--json"]) == 0
    capsys.readouterr()
    with closing(sqlite3.connect(home.approvals)) as file:
        rows = file.execute("SELECT status, sealed FROM approvals").fetchall()
    assert rows == [("expired", None)]
