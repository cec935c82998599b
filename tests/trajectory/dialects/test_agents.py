"""Who makes a call, as the call itself tells."""

from dataclasses import replace
from typing import Any

import pytest

from tests.governance.factories import assistant, call, exchange, user
from trajectory.call import Call, CallKind
from trajectory.dialects.agents import handed_over_to, with_agent
from trajectory.message import Message, ToolCallPart, ToolResultPart


def hand_off(name: str, arguments: Any = None, *, refused: bool = False) -> tuple[Message, ...]:
    return (
        Message("assistant", (ToolCallPart("c1", name, arguments or {}),)),
        Message("tool", (ToolResultPart("c1", "done", is_error=refused),)),
    )


def test_a_header_names_the_agent_and_is_stronger_than_all_else() -> None:
    one = call(context=(user("hi"), *hand_off("transfer_to_refunds")))
    named = replace(one, exchange=exchange(headers=(("x-headrace-agent", " triage "),)))
    assert (with_agent(named).agent, with_agent(named).acts_as) == ("triage", None)
    spanned = replace(one, agent="planner")
    assert with_agent(spanned).agent == "planner"


@pytest.mark.parametrize(
    ("tool", "arguments", "agent"),
    [
        ("transfer_to_refund_agent", {}, "refund_agent"),
        ("transfer_back_to_supervisor", {}, "supervisor"),
        ("handoff_to_billing", {}, "billing"),
        ("transfer_to_agent", {"agent_name": "billing"}, "billing"),
        ("transfer_to_agent", {}, None),
        ("transfer_money", {"to": "me"}, None),
    ],
)
def test_the_target_of_the_last_hand_off_acts(tool: str, arguments: Any, agent: str | None) -> None:
    before = hand_off("transfer_to_elsewhere") if agent else ()
    assert with_agent(call(context=(*before, *hand_off(tool, arguments)))).acts_as == agent


def test_a_refused_hand_off_changes_nothing() -> None:
    assert handed_over_to(hand_off("transfer_to_refunds", refused=True)) is None


def test_a_participant_acts_under_the_name_it_spoke_with() -> None:
    said = replace(assistant("Let me see."), name="planner")
    asked = replace(user("Go on."), name="critic")
    assert with_agent(call(context=(user("hi"), said, asked))).acts_as == "planner"
    assert with_agent(call(context=(asked,))).acts_as is None


def test_the_address_of_an_a2a_agent_says_who_it_is() -> None:
    sent = exchange()
    sent = replace(sent, request=replace(sent.request, path="/agents/refund%20desk/v1"))
    one = Call(sent, "a2a", CallKind.TOOL)
    assert with_agent(one).acts_as == "refund desk"
    assert with_agent(replace(one, dialect="mcp")).acts_as is None


@pytest.mark.parametrize("path", ["/a2a", "/a2a/v1", "/a2a/message:send", "/a2a/tasks/7", "/rpc"])
def test_an_address_that_names_no_agent_says_nothing(path: str) -> None:
    sent = exchange()
    sent = replace(sent, request=replace(sent.request, path=path))
    assert with_agent(Call(sent, "a2a", CallKind.TOOL)).acts_as is None
