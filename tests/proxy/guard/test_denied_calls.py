"""Denied calls of kept responses: their results stand before what the client says next."""

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.guard.approvals import Approvals
from proxy.guard.denied_calls import DeniedCalls, denied_call

KEY = b"k" * 32
CALLS = [("function_call", "call_ada"), ("mcp_approval_request", "mcpr_1")]


@pytest.fixture
def approvals(tmp_path: Path) -> Approvals:
    return Approvals(tmp_path / "approvals.sqlite", KEY)


def request(given: Any, before: Any = "resp_1") -> bytes:
    return json.dumps({"model": "m", "previous_response_id": before, "input": given}).encode()


@pytest.mark.parametrize("given", ["Go on.", [{"role": "user", "content": "Go on."}]])
def test_results_stand_before_what_the_client_says(approvals: Approvals, given: Any) -> None:
    DeniedCalls(approvals).keep("acme", "resp_1", CALLS)
    told = json.loads(DeniedCalls(approvals).completed("acme", request(given)))
    output, answer, said = told["input"]
    assert (output["type"], output["call_id"]) == ("function_call_output", "call_ada")
    assert "Headrace: this call was denied." in output["output"]
    assert (answer["approval_request_id"], answer["approve"]) == ("mcpr_1", False)
    assert said == {"role": "user", "content": "Go on."}


def test_half_of_a_character_leaves_the_request_valid(approvals: Approvals) -> None:
    DeniedCalls(approvals).keep("acme", "resp_1", CALLS)
    told = DeniedCalls(approvals).completed("acme", request("Go \ud83d")).decode()
    assert json.loads(told)["input"][-1] == {"role": "user", "content": "Go \ud83d"}
    assert len(json.loads(told)["input"]) == 3


def test_what_the_client_answers_itself_is_not_said_twice(approvals: Approvals) -> None:
    denied = DeniedCalls(approvals)
    denied.keep("acme", "resp_1", CALLS[:1])
    body = request([{"type": "function_call_output", "call_id": "call_ada", "output": "x"}])
    assert len(json.loads(denied.completed("acme", body))["input"]) == 1


def test_all_else_stays_byte_for_byte(approvals: Approvals) -> None:
    denied = DeniedCalls(approvals)
    bodies = [
        request("x", "resp_2"),
        request("x", None),
        b'{"input": "x"}',
        b'"previous_response_id" {',
    ]
    assert [denied.completed("acme", one) for one in bodies] == bodies
    denied.keep("acme", "resp_1", CALLS)
    assert [denied.completed("acme", one) for one in bodies] == bodies
    assert denied.completed("other", request("x")) == request("x")


def test_they_are_sealed_and_go_after_thirty_days(approvals: Approvals) -> None:
    now = [1000.0]
    denied = DeniedCalls(approvals, lambda: now[0])
    denied.keep("acme", "resp_1", CALLS)
    files = approvals.path.parent.glob("approvals.sqlite*")
    assert not any(b"call_ada" in one.read_bytes() for one in files)
    now[0] += 31 * 86400
    assert denied.completed("acme", request("x")) == request("x")


def test_a_call_whose_result_is_no_text_is_not_kept() -> None:
    assert denied_call({"type": "computer_call", "call_id": "c"}) is None
    assert denied_call({"type": "function_call"}) is None
