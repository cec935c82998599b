"""Spans read as calls: each convention, older forms, hostile exports, and calls seen twice."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.trajectories.replay import load
from trajectory.assembly import Assembler
from trajectory.call import Call, CallKind
from trajectory.dialects.registry import read_exchange
from trajectory.exchange import (
    ClientIdentity,
    Exchange,
    ExchangeOutcome,
    Feedback,
    HttpRequest,
    HttpResponse,
    SpoolPosition,
)
from trajectory.message import Message, TextPart, ToolCallPart, ToolResultPart
from trajectory.telemetry.calls import read_export
from trajectory.telemetry.genai import write_message

CLIENT = ClientIdentity("acme", "tests", "ci", "k1", ("train_sft",))
TRACE = "5b8efff798038103d269b633813fc60c"


def value(item: Any) -> dict[str, Any]:
    if isinstance(item, bool):
        return {"boolValue": item}
    if isinstance(item, int):
        return {"intValue": str(item)}
    if isinstance(item, float):
        return {"doubleValue": item}
    if isinstance(item, list):
        return {"arrayValue": {"values": [value(one) for one in item]}}
    if isinstance(item, dict):
        return {"kvlistValue": {"values": pairs(item)}}
    return {"stringValue": item}


def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": value(item)} for name, item in attributes.items()]


def span(
    number: int, attributes: dict[str, Any], events: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    return {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "name": "work",
        "startTimeUnixNano": str(1_790_000_000_000_000_000 + number * 1_000_000_000),
        "endTimeUnixNano": str(1_790_000_000_500_000_000 + number * 1_000_000_000),
        "attributes": pairs(attributes),
        "events": events or [],
    }


def exchange(body: bytes, kind: str = "application/json", **changes: Any) -> Exchange:
    at = datetime(2026, 9, 21, 15, tzinfo=UTC)
    values: dict[str, Any] = {
        "exchange_id": "0" * 32,
        "client": CLIENT,
        "route": "otlp",
        "mode": "otlp",
        "upstream": "",
        "started_at": at,
        "first_byte_at": at,
        "ended_at": at,
        "request": HttpRequest("POST", "/v1/traces", "", (("content-type", kind),), body),
        "response": HttpResponse(200, (), b""),
        "outcome": ExchangeOutcome.COMPLETE,
        "position": SpoolPosition("w", 0, 0),
    }
    return Exchange(**{**values, **changes})


def read(*spans: dict[str, Any]) -> tuple[list[Call], tuple[Feedback, ...]]:
    body = {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}
    (own, *calls), feedback = read_export(exchange(json.dumps(body).encode()))
    assert own.kind is CallKind.CONTROL
    assert own.ext == {"spans": len(spans), "calls": len(calls), "judgements": len(feedback)}
    return calls, feedback


USER = Message("user", (TextPart("hi"),))
ANSWER = Message("assistant", (TextPart("hello"),))


def text(role: str, words: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": words}]}


CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
FORMS = [
    pytest.param(
        {
            "gen_ai.input.messages": json.dumps([text("user", "hi")]),
            "gen_ai.output.messages": json.dumps([text("assistant", "hello")]),
        },
        [],
        id="attributes as JSON text",
    ),
    pytest.param(
        {
            "gen_ai.input.messages": [text("user", "hi")],
            "gen_ai.output.messages": [text("assistant", "hello")],
        },
        [],
        id="structured attributes",
    ),
    pytest.param(
        {},
        [
            {
                "name": "gen_ai.client.inference.operation.details",
                "attributes": pairs(
                    {
                        "gen_ai.input.messages": [text("user", "hi")],
                        "gen_ai.output.messages": [text("assistant", "hello")],
                    }
                ),
            }
        ],
        id="details event",
    ),
    pytest.param(
        {},
        [
            {"name": "gen_ai.user.message", "attributes": pairs({"content": "hi"})},
            {
                "name": "gen_ai.choice",
                "attributes": pairs(
                    {"message": json.dumps({"content": "hello"}), "finish_reason": "stop"}
                ),
            },
        ],
        id="an event per message",
    ),
    pytest.param(
        {
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "hi",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "hello",
            "gen_ai.completion.0.finish_reason": "stop",
        },
        [],
        id="attributes with an index",
    ),
    pytest.param(
        {
            "openinference.span.kind": "LLM",
            "llm.model_name": "m",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": "hi",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.contents.0.message_content.type": "text",
            "llm.output_messages.0.message.contents.0.message_content.text": "hello",
        },
        [],
        id="openinference",
    ),
]


@pytest.mark.parametrize(("attributes", "events"), FORMS)
def test_every_form_gives_the_same_conversation(
    attributes: dict[str, Any], events: list[dict[str, Any]]
) -> None:
    given = attributes if "openinference.span.kind" in attributes else {**CHAT, **attributes}
    (call,), _ = read(span(1, given, events))
    assert (call.context, call.output) == ((USER,), ANSWER)
    assert call.finish_reason in ("stop", "unreported")
    assert call.hints[-1].source == "traceparent"
    assert call.hints[-1].value == TRACE


def test_openinference_tools_tokens_sessions_and_judgements() -> None:
    model = {
        "openinference.span.kind": "LLM",
        "session.id": "s-1",
        "user.id": "u-1",
        "llm.model_name": "m-1",
        "llm.invocation_parameters": json.dumps({"model": "m", "temperature": 0.2}),
        "llm.token_count.prompt": 12,
        "llm.token_count.completion": 3,
        "llm.token_count.prompt_details.cache_read": 4,
        "llm.tools.0.tool.json_schema": json.dumps({"type": "function", "function": {"name": "f"}}),
        "llm.input_messages.0.message.role": "tool",
        "llm.input_messages.0.message.tool_call_id": "c0",
        "llm.input_messages.0.message.content": "7",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "f",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"a": 1}',
        "output.mime_type": "application/json",
        "output.value": json.dumps({"id": "chatcmpl-1"}),
        "evaluations.0.evaluation.name": "right",
        "evaluations.0.evaluation.score": 0.5,
        "evaluations.0.evaluation.annotator_kind": "HUMAN",
    }
    tool = {
        "openinference.span.kind": "TOOL",
        "tool.name": "f",
        "input.value": '{"a": 1}',
        "output.value": "8",
    }
    (call, used), (judged,) = read(span(1, model), span(2, tool))
    assert call.context == (Message("tool", (ToolResultPart("c0", "7"),)),)
    assert call.output == Message("assistant", (ToolCallPart("c1", "f", {"a": 1}),))
    assert (call.model_requested, call.model_served, call.response_id) == ("m", "m-1", "chatcmpl-1")
    assert call.usage.cached_input_tokens == 4
    assert (call.sampling, call.end_user) == ({"temperature": 0.2}, "u-1")
    assert call.hints[0].source == "client:session.id"
    assert used.dispatch is not None
    assert (used.dispatch.name, used.dispatch.arguments, used.dispatch.result) == ("f", {"a": 1}, 8)
    assert (judged.target_kind, judged.target_id) == ("response", "chatcmpl-1")
    assert judged.body["source_kind"] == "human_explicit"


def test_what_a_program_does_beside_its_tools_is_an_event() -> None:
    kinds = {"RETRIEVER": "retrieval", "GUARDRAIL": "guardrail", "EVALUATOR": "evaluator"}
    spans = [
        span(at, {"openinference.span.kind": kind, "input.value": "lamps", "output.value": '"ok"'})
        for at, kind in enumerate(kinds, 1)
    ]
    found = {
        "openinference.span.kind": "RETRIEVER", "input.value": "lamps",
        "retrieval.documents.0.document.id": "d1", "retrieval.documents.0.document.content": "A lamp.",
    }  # fmt: skip
    asked = {
        "gen_ai.operation.name": "retrieval", "gen_ai.retrieval.query.text": "lamps",
        "gen_ai.retrieval.documents": json.dumps([{"id": "d1"}]),
    }  # fmt: skip
    kept = {"gen_ai.operation.name": "update_memory", "gen_ai.tool.name": "notes"}
    calls, _ = read(*spans, span(7, found), span(8, asked), span(9, kept))
    events = [call.ext.get("event") for call in calls]
    assert events == [*kinds.values(), "retrieval", "retrieval", "memory"]
    dispatches = [call.dispatch for call in calls if call.dispatch is not None]
    assert len(dispatches) == len(calls)
    assert [one.arguments for one in dispatches[:1]] == ["lamps"]
    assert dispatches[3].result == [{"document": {"id": "d1", "content": "A lamp."}}]
    assert (dispatches[4].arguments, dispatches[4].result) == ("lamps", [{"id": "d1"}])
    assert dispatches[5].name == "notes"


def test_a_tool_is_no_event() -> None:
    (call,), _ = read(span(1, {"openinference.span.kind": "TOOL", "tool.name": "f"}))
    assert "event" not in call.ext


def test_a_call_is_made_by_the_agent_of_the_nearest_span_around_it() -> None:
    said = {**CHAT, "gen_ai.input.messages": json.dumps([text("user", "hi")])}
    around = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"}
    inner = {**said, "gen_ai.agent.name": "critic"}
    chain = {"openinference.span.kind": "CHAIN"}
    below = [{**span(n, one), "parentSpanId": f"{parent:016x}"} for n, parent, one in [
        (2, 1, chain), (3, 2, said), (4, 2, inner),
    ]]  # fmt: skip
    calls, _ = read(span(1, around), *below, span(5, said))
    assert [call.agent for call in calls] == ["planner", "critic", None]


def test_a_call_that_also_passed_through_the_gateway_is_a_duplicate() -> None:
    captured = [one for one in map(read_exchange, load("openai_chat")) if one.response_id]
    spans = []
    for number, call in enumerate(captured):
        assert call.output is not None
        client = call.exchange.client
        start = int(call.exchange.started_at.timestamp() * 1e9) - 1_000_000
        spans.append(
            {
                **span(
                    number + 1,
                    {
                        **CHAT,
                        "gen_ai.response.id": call.response_id,
                        "gen_ai.tool.definitions": json.dumps(list(call.tools)),
                        "gen_ai.input.messages": json.dumps(
                            [write_message(message) for message in call.context]
                        ),
                        "gen_ai.output.messages": json.dumps([write_message(call.output)]),
                    },
                ),
                "startTimeUnixNano": str(start),
                "endTimeUnixNano": str(start + 1_000_000_000),
            }
        )
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    calls, _ = read_export(exchange(body, client=client))
    together = Assembler(b"k" * 32).assemble([*captured, *calls]).placed
    apart = Assembler(b"k" * 32)
    later = (*apart.assemble(captured).placed, *apart.assemble(calls).placed)
    for placed in (together, later):
        assert len({one.trajectory_id for one in placed}) == 1
        assert sum(one.duplicate_of is None for one in placed) == len(captured)


def test_a_clock_that_is_ahead_does_not_bring_the_future() -> None:
    first = span(1, {**CHAT, **FORMS[0].values[0]})
    day = 86_400 * 10**9
    late = [
        {
            **first,
            "spanId": f"{number:016x}",
            "startTimeUnixNano": str(int(str(first["startTimeUnixNano"])) + day + number * 10**9),
            "endTimeUnixNano": str(int(str(first["endTimeUnixNano"])) + day + number * 10**9),
        }
        for number in (1, 2)
    ]
    calls, _ = read(*late)
    received = exchange(b"").started_at
    assert calls[0].exchange.started_at < calls[1].exchange.started_at < received
    assert calls[1].exchange.ended_at == received
    (whole,), _ = read(late[0])
    assert whole.exchange.exchange_id == calls[0].exchange.exchange_id


def test_a_clock_that_is_ahead_moves_no_other_machine_s_spans() -> None:
    said = {**CHAT, **FORMS[0].values[0]}
    year = 365 * 86_400 * 10**9
    own, ahead = span(1, said), span(2, said)
    for name in ("startTimeUnixNano", "endTimeUnixNano"):
        ahead[name] = str(int(ahead[name]) + year)
    groups = [
        {"resource": {"attributes": pairs({"host.name": host})}, "scopeSpans": [{"spans": [one]}]}
        for host, one in (("a", own), ("b", ahead), ("a", span(3, said)))
    ]
    sent = exchange(json.dumps({"resourceSpans": groups}).encode())
    (_, *calls), _ = read_export(sent)
    started = [call.exchange.started_at.timestamp() for call in calls]
    assert (started[0], started[2]) == (1_790_000_001, 1_790_000_003)
    assert calls[1].exchange.ended_at == sent.started_at


def test_what_the_headers_of_an_export_say_of_people_and_consent_holds_for_its_spans() -> None:
    said = {**CHAT, **FORMS[0].values[0], "user.id": "u-1", "enduser.id": "jo"}
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "find"}
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [span(1, said), span(2, tool)]}]}]}
    headers = (
        ("user-agent", "OTel-OTLP-Exporter-Python/1.30"),
        ("content-type", "application/json"),
        ("x-headrace-end-user", "kim"),
        ("x-privacy-opt-out", "train"),
        ("sec-gpc", "1"),
    )
    request = HttpRequest("POST", "/v1/traces", "", headers, json.dumps(body).encode())
    (_, chat, dispatch), _ = read_export(exchange(b"", request=request))
    assert (chat.end_user, {*chat.also_named}) == ("kim", {"u-1", "jo"})
    assert (dispatch.end_user, dispatch.also_named) == ("kim", ())
    for call in (chat, dispatch):  # policy says which headers take purposes away
        assert call.exchange.request.headers == headers[1:]


def test_the_time_to_the_first_chunk_is_kept() -> None:
    timed = {"gen_ai.request.stream": True, "gen_ai.response.time_to_first_chunk": 0.25}
    (call,), _ = read(span(1, {**CHAT, **FORMS[0].values[0], **timed}))
    assert call.streamed
    assert call.exchange.first_byte_at is not None
    assert (call.exchange.first_byte_at - call.exchange.started_at).total_seconds() == 0.25


def test_spans_without_messages_are_only_counted() -> None:
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [span(1, CHAT)]}]}]}
    (own,), _ = read_export(exchange(json.dumps(body).encode()))
    assert own.ext == {"spans": 1, "calls": 0, "judgements": 0}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        "gen_ai.operation.name",
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.system_instructions",
        "gen_ai.tool.definitions",
        "gen_ai.prompt.0.role",
        "gen_ai.prompt.0",
        "gen_ai.response.finish_reasons",
        "openinference.span.kind",
        "llm.input_messages.0.message.content",
        "llm.input_messages.0.message",
        "llm.invocation_parameters",
        "evaluations.0.evaluation.name",
        "evaluations.0.evaluation.score",
        "tool.parameters",
        "session.id",
    ]
)
WORDS = st.sampled_from(["chat", "execute_tool", "LLM", "TOOL", "[]", '[{"parts": [1, {}]}]'])


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(NAMES, WORDS | JSON, max_size=6), st.booleans())
def test_hostile_attributes_cost_nothing_but_themselves(
    attributes: dict[str, Any], as_event: bool
) -> None:
    events = [{"name": "gen_ai.choice", "attributes": pairs(attributes)}] if as_event else []
    body = json.dumps(
        {"resourceSpans": [{"scopeSpans": [{"spans": [span(1, attributes, events)]}]}]}
    )
    calls, _ = read_export(exchange(body.encode()))
    assert calls[0].problem is None, calls[0].problem
    Assembler(b"k" * 32).assemble(calls)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60) | JSON.map(lambda item: json.dumps(item).encode()), st.booleans())
def test_hostile_bodies_are_opaque_calls(body: bytes, as_json: bool) -> None:
    kind = "application/json" if as_json else "application/x-protobuf"
    calls, _ = read_export(exchange(body, kind))
    assert calls[0].kind in (CallKind.CONTROL, CallKind.OPAQUE)
    if calls[0].kind is CallKind.OPAQUE:
        assert calls[0].problem is not None
        assert calls[0].problem.startswith("request:")
