"""ADP: documents of its schema 1.2 are understood and come back; ours hold to its rules."""

from typing import Any

import pytest

from tests.trajectory.documents import own_trajectory
from trajectory.canonical import canonical_json
from trajectory.formats.adp import export_document, import_document
from trajectory.json_form import FormError
from trajectory.message import Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

DOCUMENT: dict[str, Any] = {
    "schema_version": "1.2.0",
    "id": "episode-7",
    "content": [
        {"class_": "text_observation", "content": "Fix the test.", "source": "user"},
        {
            "class_": "api_action",
            "function": "open",
            "kwargs": {"path": "a.py"},
            "description": "I look first.",
            "reasoning_content": "Where is it?",
            "reward": 0.25,
        },
        {"class_": "text_observation", "content": "1/0", "source": "environment"},
        {"class_": "code_action", "language": "bash", "content": "pytest", "description": "Run."},
        {
            "class_": "web_observation",
            "html": "<p>",
            "axtree": None,
            "url": "http://x",
            "viewport_size": [1, 2],
        },
        {"class_": "message_action", "content": "Done.", "description": None},
        {"class_": "text_observation", "content": "Thanks", "source": "user", "name": "Ann"},
    ],
    "available_apis": ["open"],
    "details": {"dataset": "d"},
}
ALLOWED = {
    "api_action": {"class_", "function", "kwargs", "description", "reasoning_content", "reward"},
    "message_action": {"class_", "content", "description", "reasoning_content", "reward"},
    "text_observation": {"class_", "content", "source", "name", "reward"},
}


def test_a_document_is_understood_and_comes_back() -> None:
    trajectory = import_document(DOCUMENT)
    first, second, third = trajectory.steps
    assert first.observed == (Message("user", (TextPart("Fix the test."),)),)
    assert first.output.parts == (
        ReasoningPart("Where is it?"),
        TextPart("I look first."),
        ToolCallPart("", "open", {"path": "a.py"}),
    )
    assert first.signals[0].value == 0.25
    assert second.observed == (Message("tool", (ToolResultPart("", "1/0"),)),)
    assert second.output.tool_calls()[0].arguments == {"code": "pytest"}
    assert third.output.text() == "Done."
    assert trajectory.trailing[0].name == "Ann"
    assert canonical_json(export_document(trajectory)) == canonical_json(DOCUMENT)


def test_who_used_the_application_stands_in_the_details() -> None:
    details = {"dataset": "d", "user_id": "u-17"}
    trajectory = import_document({**DOCUMENT, "details": details})
    assert trajectory.end_user == "u-17"
    assert canonical_json(export_document(trajectory)) == canonical_json(
        {**DOCUMENT, "details": details}
    )


def test_our_documents_hold_to_the_rules() -> None:
    document: Any = export_document(own_trajectory())
    assert set(document) == {"schema_version", "id", "content", "details"}
    for item in document["content"]:
        assert set(item) <= ALLOWED[item["class_"]]
        assert item.get("source", "user") in ("user", "agent", "environment")
        assert isinstance(item.get("kwargs", {}), dict)
        assert isinstance(item.get("content", ""), str)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema_version": "2.0.0"}, "schema_version: expected 1.0.0 to 1.2.0"),
        ({"id": 5}, "id: expected text"),
        ({"content": [{"class_": "song"}]}, r"content\[0\]: class_: expected an action"),
        ({"content": [{"class_": "text_observation"}]}, r"content\[0\]: content: expected text"),
    ],
)
def test_wrong_documents_are_told(change: dict[str, Any], words: str) -> None:
    with pytest.raises(FormError, match=f"^a.json: {words}"):
        import_document({**DOCUMENT, **change}, where="a.json")
