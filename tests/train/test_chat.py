"""Messages of every dialect become what chat templates take, or say why they cannot."""

import pytest

from train.chat import UnrenderableError, message_from_parts, result_text, to_chat, to_tools
from trajectory.message import (
    MediaPart,
    Message,
    OpaquePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)


def test_tool_call_keeps_its_arguments_as_an_object() -> None:
    message = Message("assistant", (TextPart("Let me see."), ToolCallPart("c1", "price", {"n": 2})))
    function = {"name": "price", "arguments": {"n": 2}}
    assert to_chat(message) == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [{"type": "function", "id": "c1", "function": function}],
        }
    ]


def test_user_message_with_tool_results_becomes_one_message_per_result() -> None:
    message = Message(
        "user",
        (
            ToolResultPart("c1", "42"),
            ToolResultPart("c2", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
            TextPart("And now?"),
        ),
    )
    assert [(chat["role"], chat["content"]) for chat in to_chat(message)] == [
        ("tool", "42"),
        ("tool", "a\nb"),
        ("user", "And now?"),
    ]


def test_developer_is_system_and_reasoning_has_its_own_field() -> None:
    assert to_chat(Message("developer", (TextPart("Be kind."),)))[0]["role"] == "system"
    thinking = Message("assistant", (ReasoningPart("Hm."), TextPart("Yes.")))
    assert to_chat(thinking)[0]["reasoning_content"] == "Hm."


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (MediaPart("image/png", None, None), "media"),
        (OpaquePart({"x": 1}), "opaque"),
        (ToolCallPart("c", "f", "{broken", arguments_valid=False), "invalid_tool_arguments"),
        (ToolCallPart("c", "f", [1]), "invalid_tool_arguments"),
    ],
)
def test_what_no_template_can_show_is_refused_by_reason(
    part: MediaPart | OpaquePart | ToolCallPart, reason: str
) -> None:
    with pytest.raises(UnrenderableError) as caught:
        to_chat(Message("assistant", (part,)))
    assert caught.value.reason == reason


def test_result_that_is_no_text_is_canonical_json() -> None:
    assert result_text({"b": 1, "a": [None]}) == '{"a":[null],"b":1}'
    assert result_text(None) == ""


def test_tools_of_three_dialects_have_one_shape() -> None:
    schema = {"type": "object"}
    forms = [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}},
        {"type": "function", "name": "f", "description": "d", "parameters": schema},
        {"name": "f", "description": "d", "input_schema": schema},
    ]
    first, *others = to_tools(forms)
    assert all(tool == first for tool in others)
    assert first["function"]["parameters"] == schema


def test_stored_columns_round_trip() -> None:
    message = message_from_parts("user", '[{"type": "text", "text": "Hello"}]')
    assert message == Message("user", (TextPart("Hello"),))


@pytest.mark.parametrize("note", ["citations", "annotations", "phase", "call_fields"])
def test_notes_beside_the_words_are_no_words(note: str) -> None:
    message = Message("assistant", (TextPart("Green."), OpaquePart({"type": note})))
    assert to_chat(message) == [{"role": "assistant", "content": "Green."}]


def test_functions_of_a_namespace_are_named_as_their_calls_are() -> None:
    function = {"type": "function", "name": "get", "parameters": {"type": "object"}}
    space = {"type": "namespace", "name": "crm", "description": "All.", "tools": [function]}
    assert [tool["function"]["name"] for tool in to_tools([space, function])] == ["crm.get", "get"]


def test_what_gemini_spells_in_its_own_way_is_shown_like_any_other() -> None:
    assert result_text({"result": "9"}) == result_text({"output": "9"}) == "9"
    assert result_text({"result": {"a": 1}}) == '{"a":1}'
    assert result_text({"output": "9", "unit": "EUR"}) == '{"output":"9","unit":"EUR"}'
    own = {"type": "OBJECT", "properties": {"type": {"type": "STRING", "enum": ["STRING"]}}}
    plain = {"type": "object", "properties": {"type": {"type": "string", "enum": ["STRING"]}}}
    declared = [{"name": "a", "parameters": own}, {"name": "a", "parametersJsonSchema": plain}]
    shown = [one["function"]["parameters"] for one in to_tools(declared)]
    assert shown == [plain, plain]
