"""What is resent comes back as one object, and only what is equal does."""

import pickle
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trajectory.canonical import JsonObject, canonical_json
from trajectory.dialects.openai_chat.read import read_message
from trajectory.dialects.resends import one_object, read_list, read_tools
from trajectory.message import Message, TextPart, ToolCallPart

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def one(value: JsonObject) -> tuple[Message]:
    return (read_message(value),)


def test_a_resent_message_is_the_same_object() -> None:
    def sent() -> JsonObject:
        return {"role": "user", "content": "what is the price of towels"}

    first, again = read_list(one, [sent()]), read_list(one, [sent()])
    assert first[0] is again[0]
    assert first[0] == read_message(sent())


def test_what_differs_in_type_alone_is_another_message() -> None:
    asked: list[Any] = [1, 1.0, True, "1", None, [1], {"n": 1}, {"n": 1.0}]
    messages = [Message("assistant", (ToolCallPart("c", "t", value),)) for value in asked]
    assert len({id(message) for message in one_object(messages)}) == len(asked)
    read = read_list(
        one, [{"role": "tool", "tool_call_id": "c", "content": value} for value in asked]
    )
    assert len({id(message) for message in read}) == len(asked)


@given(JSON, JSON)
def test_tools_are_one_tuple_when_the_same_objects_come_again(mine: Any, theirs: Any) -> None:
    one_tool, other = {"value": mine}, {"value": theirs}
    a, b = read_tools([one_tool]), read_tools([other])
    assert read_tools([one_tool]) is a
    assert a is not b
    assert a == ({"value": mine},)
    assert b == ({"value": theirs},)


def test_what_was_worked_out_is_no_part_of_the_message() -> None:
    message = Message("user", (TextPart("x"),))
    message.derived["seen"] = 1
    assert message == Message("user", (TextPart("x"),))
    assert "seen" not in replace(message, role="system").derived
    assert "seen" not in pickle.loads(pickle.dumps(message)).derived  # noqa: S301 - our own bytes
    assert message.canonical() == canonical_json(message.to_json())
