"""Questions to users of MCP clients: who can be asked, what they read, and whose answers count."""

from pathlib import Path
from typing import Any

import pytest

from proxy.guard.approvals import Approval, Approvals
from proxy.guard.elicitation import (
    Elicitations,
    ElicitedAnswer,
    McpSession,
    declares_elicitation,
    elicited_answer,
)
from proxy.guard.rules import ActionRule, Approver, RequestedCall, Ruling
from tests.support.guard import APPROVALS_KEY

RULE = ActionRule("payments", Ruling.HOLD, approver=Approver.CLIENT)
CALL = RequestedCall("pay", {"to": "Ada", "amount": 5}, tenant="acme")
SESSION = McpSession("acme", "k1", "tools", "s1")


@pytest.fixture
def approvals(tmp_path: Path) -> Approvals:
    return Approvals(tmp_path / "approvals.sqlite", APPROVALS_KEY)


def row(approvals: Approvals, call: RequestedCall = CALL) -> Approval:
    return approvals.ask(call, RULE, key_id="k1", route="tools", step_id="01", session="s1")


@pytest.mark.parametrize(
    ("parameters", "can"),
    [
        ({"capabilities": {"elicitation": {}}}, True),
        ({"capabilities": {"elicitation": {"form": {}, "url": {}}}}, True),
        ({"capabilities": {"elicitation": {"url": {}}}}, False),
        ({"capabilities": {"elicitation": True}}, False),
        ({"capabilities": {"Elicitation": {}}}, False),
        ({"capabilities": {"tasks": {"elicitation": {}}}}, False),
        ({"capabilities": []}, False),
        ({}, False),
        (None, False),
    ],
)
def test_a_client_says_that_it_can_ask(parameters: Any, can: bool) -> None:
    assert declares_elicitation(parameters) is can


@pytest.mark.parametrize(
    ("more", "approves"),
    [
        ({"result": {"action": "accept", "content": {}}}, True),
        ({"result": {"action": "decline"}}, False),
        ({"result": {"action": "cancel"}}, False),
        ({"result": {"action": "Accept"}}, None),
        ({"result": {"action": ["accept"]}}, None),
        ({"result": {}}, None),
        ({"result": "accept"}, None),
        ({"error": {"code": -32601, "message": "no"}}, None),
        ({"result": {"action": "accept"}, "error": {"code": 1, "message": "no"}}, None),
    ],
)
def test_what_a_client_answers(more: dict[str, Any], approves: bool | None) -> None:
    message = {"jsonrpc": "2.0", "id": "headrace-approval-x", **more}
    assert elicited_answer(message) == ElicitedAnswer("headrace-approval-x", approves)


@pytest.mark.parametrize("request_id", [None, 7, "7", "Headrace-approval-x"])
def test_what_it_answers_its_server_is_not_ours(request_id: Any) -> None:
    assert elicited_answer({"id": request_id, "result": {"action": "accept"}}) is None


def test_a_session_that_can_be_asked_is_known_to_every_worker(approvals: Approvals) -> None:
    now = 1000.0
    Elicitations(approvals, lambda: now).remember(SESSION)
    other = Elicitations(approvals, lambda: now)
    assert other.can_ask(SESSION)
    assert not other.can_ask(SESSION._replace(name="s2"))
    assert not other.can_ask(SESSION._replace(key_id="k2"))
    assert not other.can_ask(SESSION._replace(tenant="other"))
    assert not other.can_ask(SESSION._replace(route="more"))
    now += 31 * 86400
    assert not other.can_ask(SESSION)


def test_a_question_is_for_its_session_alone(approvals: Approvals) -> None:
    asking, waits = Elicitations(approvals), row(approvals)
    asked = asking.question(waits, CALL, SESSION)
    assert asked is not None
    assert asked["method"] == "elicitation/create"
    question_id = str(asked["id"])
    assert Elicitations(approvals).approval_of(question_id, SESSION) == waits.approval_id
    for other in (
        SESSION._replace(name="s2"),
        SESSION._replace(name=""),
        SESSION._replace(key_id="k2"),
        SESSION._replace(tenant="other"),
        SESSION._replace(route="more"),
    ):
        assert asking.approval_of(question_id, other) is None
    second = row(approvals, CALL._replace(arguments={"to": "Bob"}))
    for forged in (
        question_id.replace(waits.approval_id, second.approval_id),
        question_id[:-1] + ("0" if question_id[-1] != "0" else "1"),
        question_id[:-1],
        question_id + "\n",
        question_id.upper(),
        f"headrace-approval-{waits.approval_id}",
    ):
        assert asking.approval_of(forged, SESSION) is None
    other_key = Elicitations(Approvals(approvals.path, b"x" * 32))
    assert other_key.approval_of(question_id, SESSION) is None


def test_a_person_sees_all_that_a_call_says(approvals: Approvals) -> None:
    call = CALL._replace(arguments={"to": "Žofie\u202e\u200b\nTool: nothing", "amount": 5})
    asked: Any = Elicitations(approvals).question(row(approvals, call), call, SESSION)
    text = asked["params"]["message"]
    assert text.splitlines()[1:] == [
        "Tool: pay",
        r'Arguments: {"to": "Žofie\u202e\u200b\nTool: nothing", "amount": 5}',
    ]
    assert "rule payments asks you" in text
    assert asked["params"]["requestedSchema"] == {"type": "object", "properties": {}}


def test_what_nobody_would_read_is_not_asked(approvals: Approvals) -> None:
    call = CALL._replace(arguments={"text": "x" * 10_000})
    assert Elicitations(approvals).question(row(approvals, call), call, SESSION) is None
