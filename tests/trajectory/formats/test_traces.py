"""Traces as documents: sessions and paths apart, collectors' own JSON, errors."""

import json
from typing import Any

import pytest

from tests.trajectory.documents import own_trajectory
from tests.trajectory.telemetry.test_calls import CHAT, span, text
from trajectory.formats.catalog import FORMATS
from trajectory.json_form import FormError
from trajectory.telemetry.spans import decode_export, decode_json


def call(number: int, session: str, said: list[str], answer: str) -> dict[str, Any]:
    roles = ["user", "assistant"] * len(said)
    messages = [text(role, words) for role, words in zip(roles, said, strict=False)]
    return span(
        number,
        {
            **CHAT,
            "gen_ai.conversation.id": session,
            "gen_ai.input.messages": json.dumps(messages),
            "gen_ai.output.messages": json.dumps([text("assistant", answer)]),
        },
    )


def document(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def test_an_export_gives_a_trajectory_for_each_session_and_path() -> None:
    export = document(
        call(1, "s1", ["a"], "b"),
        call(2, "s2", ["x"], "y"),
        call(3, "s1", ["a", "b", "c"], "d"),
        call(4, "s1", ["a", "b", "e"], "f"),
        call(5, "s1", ["a title?"], "A"),
    )
    found = FORMATS["otel-genai"].read(export, "x")
    told = sorted([message.text() for message in one.messages()] for one in found)
    assert told == [["a", "b", "c", "d"], ["a", "b", "e", "f"], ["a title?", "A"], ["x", "y"]]
    assert sorted(str(one.session_id) for one in found) == ["s1", "s1", "s1", "s2"]


def test_the_export_is_an_otlp_request_in_both_forms() -> None:
    (written,) = FORMATS["otel-genai"].write([own_trajectory()])
    spans = decode_json(written.document)
    assert [one.name for one in spans] == ["invoke_agent", "chat", "chat m-2", "chat"]
    assert len({one.trace_id for one in spans}) == 1
    assert {one.parent_span_id for one in spans[1:]} == {spans[0].span_id}
    assert [one.start for one in spans[1:]] == sorted(one.start for one in spans[1:])
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    made: Any = json.loads(json.dumps(written.document))
    for one in made["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in ("traceId", "spanId", "parentSpanId"):
            one.pop(name, None)  # hexadecimal in OTLP, base64 in protobuf's general JSON
    request = ParseDict(made, ExportTraceServiceRequest())
    again = decode_export(request.SerializeToString(), "application/x-protobuf")
    assert [one.attributes for one in again] == [one.attributes for one in spans]
    assert [one.events for one in again] == [one.events for one in spans]


@pytest.mark.parametrize("name", ["otel-genai", "openinference"])
@pytest.mark.parametrize("wrong", [{}, {"resourceSpans": 3}, document(), document(span(1, {}))])
def test_what_holds_no_call_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(FormError, match=r"^x: resourceSpans: "):
        FORMATS[name].read(wrong, "x")


def test_a_user_whom_only_a_span_of_a_tool_names_is_one_of_the_documents_people() -> None:
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f", "user.id": "u-18"}
    other = span(4, {"user.id": "u-19"})
    export = document(
        span(1, {"gen_ai.operation.name": "invoke_agent", "user.id": "u-17"}),
        call(2, "s1", ["a"], "b"),
        span(3, tool),
        {**other, "traceId": "9" * 32},
    )
    (found,) = FORMATS["otel-genai"].read(export, "x")
    assert (found.end_user, found.also_named) == ("u-17", ("u-18",))


def test_a_user_whom_the_span_around_two_sessions_names_is_one_of_both() -> None:
    export = document(
        span(1, {"user.id": "u-17"}), call(2, "s1", ["a"], "b"), call(3, "s2", ["x"], "y")
    )
    found = FORMATS["otel-genai"].read(export, "x")
    assert [one.end_user for one in found] == ["u-17", "u-17"]
