"""Plain OpenAI messages: identical lines back."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.trajectories.replay import load
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError
from trajectory.formats.openai_messages import export_document, export_line, import_line

LINE: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "You calculate.", "name": "boss"},
        {"role": "user", "content": [{"type": "text", "text": "1+1?"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "add", "arguments": '{"a":1,  "b":1}'},
                },
                {"id": "c2", "type": "function", "function": {"name": "add", "arguments": "{bad"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "assistant", "content": "2", "weight": 1},
        {"role": "user", "content": ""},
    ],
    "tools": [{"type": "function", "function": {"name": "add"}}],
    "parallel_tool_calls": False,
    "signals": [{"name": "success", "value": 1.0}],
}


def test_a_line_comes_back_identical_and_is_understood() -> None:
    trajectory = import_line(json.dumps(LINE))
    assert canonical_json(json.loads(export_line(trajectory))) == canonical_json(LINE)
    assert len(trajectory.steps) == 2
    assert trajectory.steps[0].output.tool_calls()[0].arguments == {"a": 1, "b": 1}
    assert not trajectory.steps[0].output.tool_calls()[1].arguments_valid
    assert trajectory.signals[0].value == 1.0


@pytest.mark.parametrize("name", ["openai_chat", "openai_chat_stream"])
def test_what_clients_really_sent(name: str) -> None:
    for exchange in load(name):
        if exchange.request.method == "POST":
            document = json.loads(exchange.request.body)
            again = export_document(import_line(json.dumps(document)))
            assert canonical_json(again) == canonical_json(document)


JSON = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.text(max_size=4)
    | st.lists(st.text(max_size=3), max_size=2)
)
MESSAGE = st.dictionaries(
    st.sampled_from(["role", "content", "name", "tool_calls", "tool_call_id", "refusal", "x"]), JSON
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(MESSAGE, max_size=4), st.dictionaries(st.sampled_from(["tools", "signals", "y"]), JSON)
)
def test_any_line_comes_back_identical(messages: list[Any], more: dict[str, Any]) -> None:
    document = {**more, "messages": messages}
    again = export_document(import_line(json.dumps(document)))
    assert canonical_json(again) == canonical_json(document)


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"messages": 1}', "\ud800"])
def test_a_wrong_line_is_named(line: str) -> None:
    with pytest.raises(ConfigurationError, match="line 7"):
        import_line(line, number=7)
