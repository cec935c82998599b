"""MCP results that come on another stream: HTTP+SSE and resumed streams of the official SDK."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.golden.calls.replay import load
from tests.trajectory.world import World
from trajectory.assembly import Assembler
from trajectory.call import Call, CallKind
from trajectory.dialects.mcp import with_answer
from trajectory.dialects.registry import read_exchange
from trajectory.exchange import Exchange
from trajectory.reader import read_records


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


def annotated(exchange: Exchange, *, stripped: bool) -> Exchange:
    """Return an exchange of the recording as if the server had said what its tool does.

    Stripped: as the gateway notes it, without the route that led to the server.
    """
    path = exchange.request.path.removeprefix(f"/{exchange.route}" * stripped)
    request = replace(exchange.request, path=path)
    response = exchange.response
    assert response is not None
    said = b'"name":"add","annotations":{"readOnlyHint":true,"openWorldHint":false},'
    body = response.body.replace(b'"name":"add",', said)
    return replace(exchange, request=request, response=replace(response, body=body))


@pytest.mark.parametrize("stripped", [False, True])
@pytest.mark.parametrize("later", [False, True])
def test_tools_listed_on_another_stream_tell_what_they_do(stripped: bool, later: bool) -> None:
    records = [annotated(one, stripped=stripped) for one in exchanges("mcp_sse")]
    posts = [one for one in records if one.request.method == "POST"]
    began = posts[0].started_at - timedelta(seconds=1)
    streams = [replace(one, started_at=began) for one in records if one not in posts]
    assembler = Assembler(b"k" * 32)
    calls, _ = read_records(posts if later else posts + streams)
    found = [one.side_effect for one in assembler.assemble(calls).placed]
    assert found == (["unknown", "unknown"] if later else ["none", "none"])
    if later:
        late, _ = read_records(streams)
        corrected = assembler.assemble(late).corrections
        assert [one.side_effect for one in corrected] == ["none", "none"]


def test_a_stream_that_names_no_address_lists_for_its_own_path() -> None:
    world = World()
    listing = {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "add"}]}}
    body = f"event: endpoint\ndata: http://[\n\ndata: {json.dumps(listing)}\n\n"
    stream = world.exchange(
        "/sse", b"", body.encode(), method="GET",
        response_headers={"content-type": "text/event-stream"},
    )  # fmt: skip
    call = read_exchange(stream)
    assert call.tools == ({"name": "add"},)
    assert call.ext["servers"] == [stream.upstream + "/sse"]


def alone(records: list[Exchange], call: Call) -> Call:
    """Return a call as its own exchange tells it, with what the others brought to it."""
    (own,) = [one for one in records if one.exchange_id == call.exchange.exchange_id]
    (read,) = dispatches([with_answer(own, call)])
    return read


@pytest.mark.parametrize("name", ["mcp_json", "mcp_stream", "mcp_resumed", "mcp_sse"])
def test_an_exchange_with_what_others_brought_reads_the_same_alone(name: str) -> None:
    records = exchanges(name)
    for call in dispatches(records):
        read = alone(records, call)
        assert (read.dispatch, read.error) == (call.dispatch, call.error)
        assert alone([with_answer(read.exchange, read)], read) == read


def test_an_error_that_came_on_another_stream_reads_the_same_alone() -> None:
    world = World()
    session = {"mcp-session-id": "s"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add"}}
    failed = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "no such tool"}}
    stream = b"data: " + json.dumps(failed).encode() + b"\n\n"
    records = [
        world.exchange("/mcp", body, b"", status=202, headers=session),
        world.exchange("/mcp", b"", stream, method="GET", headers=session),
    ]
    (call,) = dispatches(records)
    assert call.error
    read = alone(records, call)
    assert (read.dispatch, read.error) == (call.dispatch, call.error)
