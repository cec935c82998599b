"""Golden wire files of every dialect: what the gateway captured is read as written beside it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.calls.replay import CONFIGURED, SCENARIOS, call_json, load
from tests.trajectory.dialects.test_hostile import check, mutations, swapped
from trajectory.assembly import Assembler
from trajectory.call import Call, CallKind
from trajectory.dialects.registry import DIALECTS, read_calls
from trajectory.exchange import Exchange, ExchangeOutcome
from trajectory.message import Message, OpaquePart, ReasoningPart, TextPart

KEY = b"k" * 32
GOLDEN = [pair for name in SCENARIOS for pair in load(name)]
LOOPS = [
    "openai_chat",
    "openai_chat_stream",
    "openai_responses",
    "openai_responses_stream",
    "azure_chat",
    "azure_chat_stream",
    "anthropic_messages",
    "anthropic_messages_stream",
    "gemini_interactions",
    "gemini_interactions_stream",
    "bedrock_converse",
    "bedrock_converse_stream",
]


def read(name: str) -> list[Call]:
    return [call for exchange, _ in load(name) for call in read_calls(exchange, CONFIGURED)]


@pytest.mark.parametrize("name", SCENARIOS)
def test_it_is_read_as_expected(name: str) -> None:
    for exchange, expected in load(name):
        assert [call_json(call) for call in read_calls(exchange, CONFIGURED)] == expected


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_of_it_is_opaque(name: str) -> None:
    for call in read(name):
        assert call.problem is None
        check(call)


@pytest.mark.parametrize("name", LOOPS)
def test_a_tool_loop_is_one_trajectory(name: str) -> None:
    calls = read(name)
    first, second = Assembler(KEY).assemble(calls).placed
    assert second.parent_step_id == first.step_id
    assert [message.role for message in second.new_messages] == ["tool"]
    assert first.call.output is not None
    (asked,) = first.call.output.tool_calls()
    assert (asked.name, asked.arguments) == ("add", {"a": 19, "b": 23})
    assert second.call.output == Message("assistant", (TextPart("The sum is 42. ✓"),))


@pytest.mark.parametrize("name", ["mistral_chat", "mistral_chat_stream"])
def test_thoughts_and_references_of_mistral_are_parts_of_one_answer(name: str) -> None:
    first, second = Assembler(KEY).assemble(read(name)).placed
    assert second.parent_step_id == first.step_id
    assert [message.role for message in second.new_messages] == ["tool"]
    thought = ReasoningPart("I should add.")
    assert first.call.output is not None
    assert first.call.output.parts[0] == thought
    assert [one.arguments for one in first.call.output.tool_calls()] == [{"a": 19, "b": 23}]
    source = OpaquePart({"type": "reference", "reference_ids": [0]})
    parts = (thought, TextPart("The sum"), source, TextPart(" is 42. ✓"))
    assert second.call.output == Message("assistant", parts)


@pytest.mark.parametrize("name", ["gemini", "gemini_stream"])
def test_what_has_no_call_ids_gets_equal_ones_each_time(name: str) -> None:
    first, second, third = Assembler(KEY).assemble(read(name)).placed
    assert (second.parent_step_id, third.parent_step_id) == (first.step_id, second.step_id)
    assert [message.role for message in third.new_messages] == ["user"]


def test_ollama_s_history_continues_its_answer() -> None:
    placed = Assembler(KEY).assemble(read("ollama")).placed
    assert placed[1].parent_step_id == placed[0].step_id


@pytest.mark.parametrize("name", [name for name in LOOPS if f"{name}_stream" in SCENARIOS])
def test_a_stream_reads_like_the_answer_in_one_piece(name: str) -> None:
    for plain, streamed in zip(read(name), read(f"{name}_stream"), strict=True):
        left, right = call_json(plain), call_json(streamed)
        assert right.pop("streamed")
        for value in (left, right):
            value.pop("ext", None)
        assert left["output"] == right["output"]
        assert left == right


def test_sources_and_compactions_of_a_stream_are_those_of_the_answer_in_one_piece() -> None:
    plain, streamed = read("anthropic_documents"), read("anthropic_documents_stream")
    left, right = [call_json(call) for call in (*plain, *streamed)]
    assert right.pop("streamed")
    assert left == right


def test_a_background_response_is_joined_with_its_look_up() -> None:
    calls = read("openai_responses_kept")
    queued, answer, *_, broken = Assembler(KEY).assemble(calls).placed
    assert (answer.parent_step_id, answer.role_in_graph) == (queued.step_id, "agent")
    assert answer.context_keep == 1
    assert broken.role_in_graph == "discarded"


def test_every_content_encoding_reads_the_same() -> None:
    outputs = [call.output for call in read("openai_encodings")]
    assert len(outputs) == 4
    assert outputs[0] is not None
    assert all(output == outputs[0] for output in outputs)


@pytest.mark.parametrize("pair", GOLDEN, ids=lambda pair: pair[0].request.path[-30:])
def test_an_answer_cut_anywhere_is_a_partial_answer(pair: tuple[Exchange, Any]) -> None:
    exchange, _ = pair
    assert exchange.response is not None
    body = exchange.response.body
    for length in range(0, len(body), 61):
        response = replace(exchange.response, body=body[:length])
        cut = replace(exchange, response=response, outcome=ExchangeOutcome.UPSTREAM_ABORT)
        for call in read_calls(cut, CONFIGURED):
            assert call.kind is not CallKind.OPAQUE, call.problem
            check(call)


@given(st.data())
def test_mutated_traffic_never_breaks_the_reader(data: st.DataObject) -> None:
    exchange, _ = data.draw(st.sampled_from(GOLDEN))
    assert exchange.response is not None
    request = data.draw(mutations(exchange.request.body))
    response = data.draw(mutations(exchange.response.body))
    mutated = replace(
        exchange,
        request=replace(exchange.request, body=request),
        response=replace(exchange.response, body=response),
        outcome=data.draw(st.sampled_from(list(ExchangeOutcome))),
    )
    for call in read_calls(mutated, CONFIGURED):
        check(call)


@given(st.data())
def test_fields_of_the_wrong_type_never_break_the_reader(data: st.DataObject) -> None:
    exchange, _ = data.draw(st.sampled_from(GOLDEN))
    assert exchange.response is not None
    body = exchange.response.body
    if data.draw(st.booleans()):
        body = swapped(data, body)
    else:
        lines = body.split(b"\n")
        place = data.draw(st.integers(0, len(lines) - 1))
        lead = b"data: " if lines[place].startswith(b"data: ") else b""
        lines[place] = lead + swapped(data, lines[place].removeprefix(lead))
        body = b"\n".join(lines)
    mutated = replace(
        exchange,
        request=replace(exchange.request, body=swapped(data, exchange.request.body)),
        response=replace(exchange.response, body=body),
    )
    for call in read_calls(mutated, CONFIGURED):
        check(call)
        assert not (call.problem or "").startswith("dialect:")


@given(st.data())
def test_a_damaged_binary_stream_is_quarantined_with_its_reason(data: st.DataObject) -> None:
    exchange = load("bedrock_converse_stream")[0][0]
    assert exchange.response is not None
    body = bytearray(exchange.response.body)
    position = data.draw(st.integers(0, len(body) - 1))
    body[position] ^= data.draw(st.integers(1, 255))
    damaged = replace(exchange, response=replace(exchange.response, body=bytes(body)))
    (call,) = read_calls(damaged)
    assert call.kind is CallKind.OPAQUE
    assert (call.problem or "").startswith("response:event-stream:")


def test_every_dialect_has_a_golden_file() -> None:
    found = {call.dialect for name in SCENARIOS for call in read(name)}
    assert {dialect.name for dialect in (*DIALECTS, *CONFIGURED)} <= found


@pytest.mark.parametrize("dialect", [*DIALECTS, *CONFIGURED], ids=lambda dialect: dialect.name)
def test_what_a_dialect_claims_is_seen_in_its_golden_files(dialect: Any) -> None:
    calls = [call for name in SCENARIOS for call in read(name) if call.dialect == dialect.name]
    claims = dialect.yields
    outputs = [call.output for call in calls if call.output is not None]
    kinds = {part.type for output in outputs for part in output.parts}
    assert any(call.kind is claims.kind for call in calls)
    assert any(call.streamed for call in calls) is bool(claims.streams)
    assert not claims.text or "text" in kinds
    assert ("tool_call" in kinds) is claims.tool_calls
    assert claims.reasoning or "reasoning" not in kinds
    assert claims.usage is any(call.usage.input_tokens is not None for call in calls)
    assert claims.tokens or not any(call.tokens for call in calls)


def test_claude_on_vertex_is_read_like_claude() -> None:
    """The path names the model, and may quote it."""
    direct = read("anthropic_messages_stream")
    vertex = [call for call in read("anthropic_vertex_stream") if call.kind is CallKind.MODEL]
    assert [call.output for call in vertex] == [call.output for call in direct]
    assert {call.model_requested for call in vertex} == {"tiny@20260101"}
    exchange, _ = load("anthropic_vertex_stream")[0]
    path = exchange.request.path.replace("tiny@20260101", "claude%402")
    (call,) = read_calls(replace(exchange, request=replace(exchange.request, path=path)))
    assert call.model_requested == "claude@2"
