"""MCP results that come on another stream: HTTP+SSE and resumed streams of the official SDK."""

from dataclasses import replace

import pytest

from tests.trajectory.dialects.golden.replay import load
from tests.trajectory.world import World
from trajectory.call import Call, CallKind
from trajectory.carried import read_records
from trajectory.exchange import Exchange


def exchanges(name: str) -> list[Exchange]:
    return [exchange for exchange, _ in load(name)]


def dispatches(records: list[Exchange]) -> list[Call]:
    calls, _ = read_records(records)
    return [call for call in calls if call.kind is CallKind.TOOL]


@pytest.mark.parametrize("name", ["mcp_json", "mcp_stream", "mcp_resumed", "mcp_sse"])
def test_every_transport_gives_the_same_tool_steps(name: str) -> None:
    added, failed = dispatches(exchanges(name))
    assert added.dispatch is not None
    assert added.dispatch.name == ("slow_add" if name == "mcp_resumed" else "add")
    assert added.dispatch.arguments == {"a": 19, "b": 23}
    assert added.dispatch.result == {
        "content": [{"type": "text", "text": "42"}],
        "structuredContent": {"result": 42},
        "isError": False,
    }
    assert (added.dispatch.is_error, added.error) == (False, None)
    assert failed.dispatch is not None
    assert failed.dispatch.is_error
    elsewhere = added.ext.get("answer") == "another stream"
    assert elsewhere is (name in ("mcp_resumed", "mcp_sse"))
    assert len({hint.value for hint in (*added.hints, *failed.hints)}) == 1


@pytest.mark.parametrize("name", ["mcp_resumed", "mcp_sse"])
def test_without_the_other_stream_the_call_stays_and_says_so(name: str) -> None:
    posts = [exchange for exchange in exchanges(name) if exchange.request.method == "POST"]
    call = dispatches(posts)[0]
    assert call.dispatch is not None
    assert call.dispatch.result is None
    assert call.ext["answer"] == "elsewhere"
    if name == "mcp_sse":
        assert (call.dispatch.is_error, call.error) == (False, None)


def test_another_client_s_stream_answers_nobody_else() -> None:
    records = [
        exchange
        if exchange.request.method == "POST"
        else replace(exchange, client=replace(exchange.client, key_id="other"))
        for exchange in exchanges("mcp_sse")
    ]
    assert dispatches(records)[0].ext["answer"] == "elsewhere"


def test_a_stream_that_cannot_be_read_joins_nothing() -> None:
    world = World()
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add"}}
    session = {"mcp-session-id": "s"}
    post = world.exchange("/mcp", body, b"", status=202, headers=session)
    stream = world.exchange(
        "/mcp",
        b"",
        b"\x1f\x8bnonsense",
        method="GET",
        headers=session,
        response_headers={"content-type": "text/event-stream", "content-encoding": "gzip"},
    )
    assert dispatches([post, stream])[0].ext["answer"] == "elsewhere"
