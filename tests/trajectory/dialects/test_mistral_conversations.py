"""Mistral's conversations: a later request holds only what is new, and belongs to the same session."""

from typing import Any

import pytest

from tests.trajectory.world import World
from trajectory.assembly import Assembler
from trajectory.call import CallKind
from trajectory.dialects.registry import read_exchange

OUTPUT = {"type": "message.output", "id": "m1", "role": "assistant", "model": "mistral-large"}
ANSWER: dict[str, Any] = {
    "object": "conversation.response",
    "conversation_id": "conv_7",
    "outputs": [{**OUTPUT, "content": "Hello."}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}


def test_entries_of_one_turn_are_one_message() -> None:
    call = {"type": "function.call", "tool_call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
    body = {
        "agent_id": "ag_1",
        "inputs": [
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"type": "message.output", "content": "I add."},
            call,
            {"type": "function.result", "tool_call_id": "c1", "result": "1"},
        ],
    }
    found = read_exchange(World().exchange("/v1/conversations", body, ANSWER))
    assert (found.kind, found.problem, found.finish_reason) == (CallKind.MODEL, None, "stop")
    assert [one.role for one in found.context] == ["user", "assistant", "tool"]
    assert [part.arguments for part in found.context[1].tool_calls()] == [{"a": 1}]
    assert found.output is not None
    assert found.output.text() == "Hello."
    assert (found.model_requested, found.model_served) == ("ag_1", "mistral-large")


@pytest.mark.parametrize("path", ["/v1/conversations/conv_7", "/v1/conversations/conv_7/restart"])
def test_what_is_appended_belongs_to_the_conversation(path: str) -> None:
    world = World()
    first = world.exchange("/v1/conversations", {"model": "m", "inputs": "Hi"}, ANSWER)
    more = world.exchange(
        path, {"inputs": "And?", "from_entry_id": "m1"}, {**ANSWER, "outputs": []}
    )
    calls = [read_exchange(one) for one in (first, more)]
    assert [call.kind for call in calls] == [CallKind.MODEL, CallKind.MODEL]
    placed = Assembler(b"k" * 32).assemble(calls).placed
    assert len({one.session_hint for one in placed} - {None}) == 1


def test_a_stream_that_fails_says_why() -> None:
    events = (
        'data: {"type": "conversation.response.started", "conversation_id": "conv_7"}\n\n'
        'data: {"type": "message.output.delta", "id": "m1", "content": "Hel"}\n\n'
        'data: {"type": "conversation.response.error", "message": "overloaded", "code": 3}\n\n'
    )
    body = {"model": "m", "inputs": "Hi", "stream": True}
    call = read_exchange(World().exchange("/v1/conversations", body, events.encode()))
    assert call.error is not None
    assert "overloaded" in call.error
    assert call.output is not None
    assert call.output.text() == "Hel"


def test_items_of_openai_are_control() -> None:
    body = {"items": [{"type": "message", "role": "user", "content": "Hi"}]}
    call = read_exchange(World().exchange("/v1/conversations", body, {"id": "conv_1"}))
    assert call.kind is CallKind.CONTROL
