"""Trace exports: the real SDK and its exporter against a running gateway, and on into a lake."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Status, StatusCode

from tests.headrace.pipelines import pipeline
from tests.proxy.gateway_process import SPOOL_KEY, GatewayProcess

PERSON = "maria.lopez@example.org"
TOOL = {"type": "function", "name": "add", "description": "Adds.", "parameters": {}}


def text(role: str, words: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": words}]}


ASKED = text("user", f"What is 1 + 1? Answer {PERSON}.")
CALLED = {
    "role": "assistant",
    "finish_reason": "tool_calls",
    "parts": [{"type": "tool_call", "id": "c1", "name": "add", "arguments": {"a": 1, "b": 1}}],
}
TOLD = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "2"}]}


def act(tracer: Any, session: str) -> None:
    """Do what an instrumented agent does: two model calls and a tool call under one agent span."""
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "adder"}
    with tracer.start_as_current_span("invoke_agent adder", attributes=agent):
        for context, answer in (
            ([ASKED], CALLED),
            ([ASKED, CALLED, TOLD], {**text("assistant", "2"), "finish_reason": "stop"}),
        ):
            with tracer.start_as_current_span("chat m") as span:
                span.set_attributes(
                    {
                        "gen_ai.operation.name": "chat",
                        "gen_ai.provider.name": "openai",
                        "gen_ai.conversation.id": session,
                        "gen_ai.request.model": "m",
                        "gen_ai.response.model": "m-1",
                        "gen_ai.response.id": f"r-{session}-{len(context)}",
                        "gen_ai.response.finish_reasons": [answer["finish_reason"]],
                        "gen_ai.request.temperature": 0.5,
                        "gen_ai.usage.input_tokens": 10,
                        "gen_ai.usage.output_tokens": 3,
                        "gen_ai.system_instructions": json.dumps(
                            [{"type": "text", "content": "You add."}]
                        ),
                        "gen_ai.tool.definitions": json.dumps([TOOL]),
                        "gen_ai.input.messages": json.dumps(context),
                        "gen_ai.output.messages": json.dumps([answer]),
                    }
                )
                if answer is not CALLED:
                    score = {"gen_ai.evaluation.name": "right", "gen_ai.evaluation.score.value": 1}
                    span.add_event("gen_ai.evaluation.result", score)
            if answer is CALLED:
                with tracer.start_as_current_span("execute_tool add") as span:
                    span.set_attributes(
                        {
                            "gen_ai.operation.name": "execute_tool",
                            "gen_ai.tool.name": "add",
                            "gen_ai.tool.call.id": "c1",
                            "gen_ai.tool.call.arguments": '{"a": 1, "b": 1}',
                            "gen_ai.tool.call.result": "2",
                        }
                    )
        with tracer.start_as_current_span("GET /prices") as span:
            span.set_attribute("http.request.method", "GET")


def export(gateway: GatewayProcess, compression: Compression, session: str, key: str) -> None:
    """Send through the SDK's own exporter."""
    exporter = OTLPSpanExporter(
        endpoint=f"{gateway.url}/v1/traces",
        headers={"authorization": f"Bearer {key}"},
        compression=compression,
    )
    provider = TracerProvider(resource=Resource({"service.name": "agent"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    act(provider.get_tracer("agent"), session)
    assert provider.force_flush()
    provider.shutdown()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("gateway")) as running:
        yield running


def test_an_instrumented_agent_ends_in_the_lake_without_a_proxy(gateway: GatewayProcess) -> None:
    export(gateway, Compression.Gzip, "s1", gateway.key)
    export(gateway, Compression.NoCompression, "s2", gateway.key)
    stored = b"".join(path.read_bytes() for path in (gateway.home / "spool").rglob("*.spool"))
    assert b"maria" not in stored
    carried = pipeline(gateway.home, spool_key=SPOOL_KEY)
    while carried.run_batch() is not None:
        pass
    lake = carried.lake
    steps = lake.query(
        "select * from steps order by trajectory_id, started_at, step_index"
    ).to_pylist()
    assert [step["kind"] for step in steps] == ["model", "tool", "model"] * 2
    assert len({step["trajectory_id"] for step in steps}) == 2
    for first, tool, second in (steps[:3], steps[3:]):
        assert second["parent_step_id"] == first["step_id"] == tool["parent_step_id"]
        assert second["context_keep"] == 3
        assert first["key_source"] == "client:gen_ai.conversation.id"
        assert tool["key_source"] == "traceparent"
        assert (first["dialect"], first["model_served"]) == ("otel.genai", "m-1")
        assert first["input_tokens"] == 10
        assert json.loads(first["sampling"]) == {"temperature": 0.5}
        assert first["tool_calls"][0]["arguments"] == '{"a":1,"b":1}'
        assert tool["tool_results"][0]["content"] == "2"
    signals = lake.query("select name, value, step_id, source_kind from signals").to_pylist()
    judged = [signal for signal in signals if signal["name"] == "right"]
    assert sorted(signal["step_id"] for signal in judged) == sorted(
        [steps[2]["step_id"], steps[5]["step_id"]]
    )
    parts = json.dumps(lake.query("select parts from messages")["parts"].to_pylist())
    assert "You add." in parts
    assert PERSON not in parts
    ledger = lake.query("select disposition, count(*) as n from exchanges group by all")
    counts = {row["disposition"]: row["n"] for row in ledger.to_pylist()}
    assert counts == {"stored": 6, "control": 2}


def test_what_a_program_does_beside_its_tools_is_an_event_in_the_lake(tmp_path: Path) -> None:
    events = {
        "RETRIEVER": ("retrieval", {"retrieval.documents.0.document.content": f"By {PERSON}"}),
        "RERANKER": ("retrieval", {"reranker.output_documents.0.document.id": "d1"}),
        "GUARDRAIL": ("guardrail", {"output.value": '{"passed": true}'}),
        "EVALUATOR": ("evaluator", {"output.value": '{"score": 0.5}'}),
    }
    with GatewayProcess(tmp_path) as running:
        exporter = OTLPSpanExporter(
            endpoint=f"{running.url}/v1/traces", headers={"authorization": f"Bearer {running.key}"}
        )
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(exporter))
        tracer = provider.get_tracer("agent")
        with tracer.start_as_current_span("work"):
            for kind, (_, said) in events.items():
                with tracer.start_as_current_span(f"{kind} lamps") as span:
                    span.set_attributes({"openinference.span.kind": kind, "session.id": "s"})
                    span.set_attributes({"input.value": "lamps", **said})
            with tracer.start_as_current_span("remember") as span:
                span.set_attribute("gen_ai.operation.name", "update_memory")
                span.set_attribute("gen_ai.tool.name", "notes")
        provider.shutdown()
        carried = pipeline(running.home, spool_key=SPOOL_KEY)
        while carried.run_batch() is not None:
            pass
    steps = carried.lake.query(
        "select ext ->> 'event' as event, * from steps order by started_at, step_index"
    ).to_pylist()
    assert [step["event"] for step in steps] == [*(event for event, _ in events.values()), "memory"]
    assert {step["kind"] for step in steps} == {"tool"}
    assert len({step["trajectory_id"] for step in steps}) == 1
    found, ranked, guarded, judged, kept = steps
    assert [step["tool_calls"][0]["name"] for step in (found, kept)] == ["RETRIEVER lamps", "notes"]
    assert found["tool_calls"][0]["arguments"] == '"lamps"'
    told = [json.loads(step["tool_results"][0]["content"]) for step in (ranked, guarded, judged)]
    assert told == [[{"document": {"id": "d1"}}], {"passed": True}, {"score": 0.5}]
    assert "By <EMAIL_ADDRESS_" in found["tool_results"][0]["content"]
    assert PERSON not in json.dumps(steps, default=str)


def test_json_and_a_repeated_export_are_stored_once(gateway: GatewayProcess) -> None:
    span = {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
        "name": "chat m",
        "startTimeUnixNano": "1790000000000000000",
        "endTimeUnixNano": "1790000001000000000",
        "attributes": [
            {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
            {"key": "gen_ai.input.messages", "value": {"stringValue": json.dumps([ASKED])}},
            {
                "key": "gen_ai.output.messages",
                "value": {"stringValue": json.dumps([text("assistant", "Two.")])},
            },
        ],
    }
    body = gzip.compress(
        json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    )
    for _ in range(2):
        answer = httpx.post(
            f"{gateway.url}/v1/traces",
            content=body,
            headers={
                "x-headrace-key": gateway.key,
                "content-type": "application/json",
                "content-encoding": "gzip",
            },
        )
        assert (answer.status_code, answer.json()) == (200, {})
    carried = pipeline(gateway.home, spool_key=SPOOL_KEY)
    while carried.run_batch() is not None:
        pass
    rows = carried.lake.query(
        "select s.step_id from steps s join exchanges e using (exchange_id)"
        " where e.mode = 'otlp' and s.started_at < '2026-09-23'"
    )
    assert rows.num_rows == 1


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "application/json"}, 401),
        ({"content-type": "text/plain", "x-headrace-key": "KEY"}, 415),
    ],
)
def test_refusals(gateway: GatewayProcess, headers: dict[str, str], status: int) -> None:
    given = {name: value.replace("KEY", gateway.key) for name, value in headers.items()}
    assert httpx.post(f"{gateway.url}/v1/traces", content=b"{}", headers=given).status_code == (
        status
    )
    assert httpx.get(f"{gateway.url}/v1/traces").status_code == 405


def test_a_broken_export_is_quarantined_and_a_failed_call_keeps_its_error(
    tmp_path: Path,
) -> None:
    with GatewayProcess(tmp_path) as running:
        kind = {"x-headrace-key": running.key, "content-type": "application/x-protobuf"}
        answer = httpx.post(f"{running.url}/v1/traces", content=b"\xff\xff", headers=kind)
        assert (answer.status_code, answer.content) == (200, b"")
        exporter = OTLPSpanExporter(
            endpoint=f"{running.url}/v1/traces", headers={"x-api-key": running.key}
        )
        provider = TracerProvider(resource=Resource({}))
        provider.add_span_processor(BatchSpanProcessor(exporter))
        with provider.get_tracer("agent").start_as_current_span("chat m") as span:
            span.set_attribute("gen_ai.operation.name", "chat")
            span.set_attribute("gen_ai.input.messages", json.dumps([text("user", "hi")]))
            span.set_attribute("error.type", "rate_limit")
            span.set_status(Status(StatusCode.ERROR, f"too many for {PERSON}"))
        provider.shutdown()
        carried = pipeline(tmp_path, spool_key=SPOOL_KEY)
        while carried.run_batch() is not None:
            pass
    (step,) = carried.lake.query("select * from steps").to_pylist()
    assert step["role_in_graph"] == "discarded"
    assert step["error"].startswith("rate_limit: too many for ")
    assert PERSON not in step["error"]
    (held,) = carried.lake.query("select reason from quarantine").to_pylist()
    assert held["reason"] == "request:not-otlp"
