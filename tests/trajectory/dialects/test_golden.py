"""Traffic of the official SDKs, read and assembled."""

import pytest

from tests.golden.trajectories.replay import load
from trajectory.assembly import Assembler
from trajectory.call import Call, CallKind
from trajectory.dialects.registry import read_exchange
from trajectory.message import (
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

KEY = b"k" * 32
CALL = ToolCallPart("call_add_1", "add", {"a": 19, "b": 23})
FINAL = Message("assistant", (TextPart("The sum is 42. ✓"),))


def read(name: str) -> list[Call]:
    return [read_exchange(exchange) for exchange in load(name)]


def model_calls(name: str) -> list[Call]:
    return [call for call in read(name) if call.kind is CallKind.MODEL]


@pytest.mark.parametrize(
    "name",
    [
        "openai_chat",
        "openai_chat_stream",
        "openai_chat_tokens",
        "openai_chat_tokens_stream",
        "openai_responses",
        "openai_responses_stream",
        "openai_responses_previous",
        "anthropic_messages",
        "anthropic_messages_stream",
    ],
)
def test_every_loop_is_one_trajectory_that_ends_with_the_answer(name: str) -> None:
    calls = read(name)
    placed = Assembler(KEY).assemble(calls).placed
    assert len(placed) == 2
    first, second = placed
    assert first.trajectory_id == second.trajectory_id
    assert second.parent_step_id == first.step_id
    assert second.call.output == FINAL
    assert [message.role for message in second.new_messages] == ["tool"]
    result = second.new_messages[0].parts[0]
    assert isinstance(result, ToolResultPart)
    assert result.content in ("42", [{"type": "text", "text": "42"}])
    (asked,) = first.call.output.tool_calls() if first.call.output else ()
    assert (asked.name, asked.arguments, asked.arguments_valid) == ("add", CALL.arguments, True)
    assert first.call.streamed is ("stream" in name)
    assert first.call.model_served == "tiny-1"
    assert first.call.response_id is not None
    assert first.call.usage.output_tokens is not None
    assert len(first.call.tools) == 1


@pytest.mark.parametrize("name", ["openai_chat", "openai_responses", "anthropic_messages"])
def test_a_stream_reads_like_the_same_answer_in_one_piece(name: str) -> None:
    plain, streamed = model_calls(name), model_calls(f"{name}_stream")
    for one, other in zip(plain, streamed, strict=True):
        assert one.output == other.output
        assert one.finish_reason == other.finish_reason
        assert one.response_id == other.response_id
        assert one.usage == other.usage
        assert one.context == other.context


def test_chat_completions() -> None:
    listing, first, second = read("openai_chat")
    assert (listing.kind, listing.dialect) == (CallKind.CONTROL, "control")
    assert first.output == Message("assistant", (CALL,))
    assert first.context[0] == Message("system", (TextPart("You are a calculator."),))
    assert second.context[2:] == (
        Message("assistant", (CALL,)),
        Message("tool", (ToolResultPart("call_add_1", "42"),)),
    )
    assert first.sampling == {"temperature": 0.5}
    assert first.end_user == "user-7"
    assert (first.finish_reason, second.finish_reason) == ("tool_calls", "stop")
    assert (first.usage.input_tokens, first.usage.cached_input_tokens) == (4, 2)
    assert first.ext == {"response": {"system_fingerprint": "fp_1"}}


@pytest.mark.parametrize("name", ["openai_chat_tokens", "openai_chat_tokens_stream"])
def test_tokens_come_from_the_engine(name: str) -> None:
    for call in model_calls(name):
        assert call.tokens is not None
        assert call.tokens.prompt_token_ids == (1, 2, 3, 4)
        assert call.tokens.completion_token_ids == (7, 8, 9)
        assert call.tokens.logprobs == (-0.7, -0.8, -0.9)
        assert call.sampling["return_token_ids"] is True


def test_retries_of_the_sdk() -> None:
    calls = read("openai_chat_retry")
    assert [call.retry_count for call in calls] == [0, 1, 2, 0]
    assert calls[0].error == "server_error: The server had an error"
    assert calls[0].output is None
    placed = Assembler(KEY).assemble(calls).placed
    assert [item.role_in_graph for item in placed] == ["discarded", "discarded", "agent", "agent"]
    assert len({item.trajectory_id for item in placed}) == 1
    assert placed[2].retry_of == placed[1].step_id
    assert placed[3].parent_step_id == placed[2].step_id


def test_a_cut_stream_and_what_the_application_does_then() -> None:
    calls = read("openai_chat_cut")
    assert calls[0].finish_reason is None
    assert calls[0].output is not None
    (partial,) = calls[0].output.tool_calls()
    assert (partial.arguments, partial.arguments_valid) == (CALL.arguments, True)
    placed = Assembler(KEY).assemble(calls).placed
    assert [item.role_in_graph for item in placed] == ["discarded", "agent", "agent"]
    assert len({item.trajectory_id for item in placed}) == 1


def test_responses_keep_reasoning() -> None:
    first, second = model_calls("openai_responses")
    thought = ReasoningPart("I should add.", "rs_1")
    assert first.output == Message("assistant", (thought, CALL))
    assert second.context[0] == Message("system", (TextPart("You calculate."),))
    assert second.context[2] == first.output
    assert first.usage.reasoning_tokens == 2


def test_responses_that_name_the_one_before() -> None:
    calls = model_calls("openai_responses_previous")
    assert [hint.source for hint in calls[1].hints] == ["previous_response_id"]
    placed = Assembler(KEY).assemble(calls).placed
    assert placed[1].key_source == "previous_response_id"
    assert placed[1].context_is_delta
    assert placed[1].context_keep == 3


def test_messages_keep_thinking_and_name_the_session() -> None:
    first, second = model_calls("anthropic_messages")
    assert first.output is not None
    assert [part.type for part in first.output.parts] == ["reasoning", "text", "tool_call"]
    assert first.end_user == "user_ab12_account_"
    assert [hint.source for hint in first.hints] == ["client:metadata.user_id"]
    assert first.usage.input_tokens == 15
    assert second.ext["cache_control"] == [[2, 0, {"type": "ephemeral"}]]
    assert first.sampling == {"max_tokens": 100}


@pytest.mark.parametrize("name", ["mcp", "mcp_json"])
def test_tool_sessions(name: str) -> None:
    calls = read(name)
    assert {call.dialect for call in calls} == {"mcp"}
    tools = [call for call in calls if call.kind is CallKind.TOOL]
    control = [call.ext["method"] for call in calls if call.kind is CallKind.CONTROL]
    assert set(control) == {
        "initialize",
        "notifications/initialized",
        "tools/list",
        "http:get",
        "http:delete",
    }
    good, bad = (call.dispatch for call in tools)
    assert good is not None
    assert bad is not None
    assert (good.name, good.arguments, good.is_error) == ("add", {"a": 19, "b": 23}, False)
    assert good.result == {
        "content": [{"type": "text", "text": "42"}],
        "structuredContent": {"result": 42},
        "isError": False,
    }
    assert bad.is_error
    sessions = {hint.value for call in calls for hint in call.hints}
    assert len(sessions) == 1
    placed = Assembler(KEY).assemble(calls).placed
    assert len({item.trajectory_id for item in placed}) == 1
