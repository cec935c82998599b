"""Traces: one span for each exchange, below the client's own, with no byte of content in them."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.proxy.gateway_process import LISTENER, GatewayProcess
from tests.support.provider import provider
from tests.support.upstream import ReceivedRequest, Reply, Upstream, plain

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
SECRETS = (b"jane.doe", b"sk-provider-secret", b"private-session", b"secret-cookie")


@pytest.fixture(scope="module")
def collector() -> Iterator[Upstream]:
    def take(_: ReceivedRequest) -> Reply:
        return plain(200, b"", ("Content-Type", "application/x-protobuf"))

    with Upstream(take) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(
    collector: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    with Upstream(provider) as upstream:
        routes = [
            {"name": "openai", "upstream": upstream.url},
            {"name": "down", "upstream": "http://127.0.0.1:9"},
        ]
        settings = {
            "routes": routes,
            "forward_port": None,
            "traces": f"{collector.url}/v1/traces",
        }
        with GatewayProcess(tmp_path_factory.mktemp("traces"), settings) as running:
            yield running


def spans(collector: Upstream, count: int) -> list[Any]:
    """Return the spans that the collector got, once there are so many."""
    deadline = time.monotonic() + 60
    while True:
        found = []
        for request in collector.seen:
            message = ExportTraceServiceRequest.FromString(request.body)
            for resource in message.resource_spans:
                for scope in resource.scope_spans:
                    found += scope.spans
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def attributes(span: Any) -> dict[str, Any]:
    return {
        item.key: item.value.string_value or item.value.int_value or item.value.double_value
        for item in span.attributes
    }


def test_exchanges_become_spans_without_content(
    gateway: GatewayProcess, collector: Upstream
) -> None:
    headers = {
        "authorization": f"Bearer {gateway.key}",
        "traceparent": PARENT,
        "x-headrace-session": "private-session",
    }
    with httpx.Client(base_url=gateway.url, headers=headers) as client:
        client.post(
            "/openai/v1/chat/completions?user=jane.doe",
            json={"messages": [{"role": "user", "content": "I am jane.doe"}]},
        )
        client.post("/down/v1/jane.doe", json={})
        # The plain listener knows the registered methods alone.
        odd_method = "PROPFIND" if LISTENER.get() == "plain" else "JANE.DOE"
        client.request(odd_method, "/openai/v1/x", headers={"traceparent": "nonsense"})
    good, bad, odd = spans(collector, 3)
    assert (good.name, good.trace_id.hex()) == ("POST openai", TRACE)
    assert good.parent_span_id.hex() == "b7ad6b7169203331"
    found = attributes(good)
    assert found["http.response.status_code"] == 200
    assert (found["headrace.outcome"], found["headrace.capture"]) == ("complete", "full")
    assert good.end_time_unix_nano > good.start_time_unix_nano
    assert attributes(bad)["headrace.outcome"] == "upstream_abort"
    assert bad.status.code == 2
    assert odd.name == "_OTHER openai"
    assert not odd.parent_span_id
    sent = b"".join(request.body for request in collector.seen)
    assert not [secret for secret in (*SECRETS, gateway.key.encode()) if secret in sent]


def test_a_collector_that_is_down_hurts_nobody(tmp_path: Path) -> None:
    with Upstream(provider) as upstream:
        settings = {
            "routes": [{"name": "openai", "upstream": upstream.url}],
            "forward_port": None,
            "traces": "http://127.0.0.1:9/v1/traces",
        }
        with GatewayProcess(tmp_path, settings) as gateway:
            answer = httpx.post(
                f"{gateway.url}/openai/echo",
                content=b"jane.doe",
                headers={"authorization": f"Bearer {gateway.key}"},
            )
            assert answer.content == b"jane.doe"
            assert gateway.stop() == 0
            assert "jane.doe" not in gateway.log.read_text()
