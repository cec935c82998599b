"""The state of a step is what it was shown since the model last spoke."""

import json
from dataclasses import replace

from governance.identifiers import Namer
from governance.passes.drafts import state_hash
from tests.governance.factories import assembly, call, governor, placed, user
from trajectory.message import Message, Part, TextPart, ToolCallPart, ToolResultPart

NAMER = Namer(b"k" * 32)


def said(role: str, *parts: Part) -> Message:
    return Message(role, parts)


def named(*context: Message) -> str | None:
    return state_hash(NAMER, "acme", context)


QUESTION = said("user", TextPart("how much?"))


def asked(call_id: str) -> Message:
    return said("assistant", ToolCallPart(call_id, "price", {"n": 1}))


def told(call_id: str, content: str, *, is_error: bool = False) -> Message:
    return said("tool", ToolResultPart(call_id, content, is_error))


def test_attempts_that_were_shown_the_same_share_a_state() -> None:
    one = named(QUESTION, asked("a"), told("a", "12"))
    other = named(said("user", TextPart("price?")), asked("b"), told("b", "12"))
    assert one == other != named(QUESTION)


def test_what_a_tool_said_and_whether_it_failed_make_the_state() -> None:
    states = {
        named(QUESTION, asked("a"), told("a", "12")),
        named(QUESTION, asked("a"), told("a", "13")),
        named(QUESTION, asked("a"), told("a", "12", is_error=True)),
        named(QUESTION, asked("a"), told("a", "12"), QUESTION),
    }
    assert len(states) == 4


def test_tenants_do_not_share_states_and_nothing_shown_is_no_state() -> None:
    assert state_hash(NAMER, "other", [QUESTION]) != named(QUESTION)
    assert named(QUESTION, asked("a")) is None


def test_a_step_says_what_the_gateway_added_to_its_request() -> None:
    one = call(1, context=(user("hi"),))
    added = ("style@0001", "facts@0002=days+cash", "~facts@0002 canary", "^shop@0002 control")
    given = replace(one, exchange=replace(one.exchange, artifacts=added))
    with_them, without = (
        governor().judge(assembly(placed(each))).steps[0] for each in (given, one)
    )
    assert with_them.artifacts == ("style@0001", "facts@0002")
    assert json.loads(with_them.ext)["artifact_facts"] == {"facts@0002": ["days", "cash"]}
    assert json.loads(with_them.ext)["artifact_arm"] == "facts@0002 canary"
    assert json.loads(with_them.ext)["model_arm"] == "shop@0002 control"
    assert without.artifacts is None
    assert "artifact_facts" not in without.ext
