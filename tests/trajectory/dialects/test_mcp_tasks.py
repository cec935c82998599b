"""MCP beside plain tool calls: tasks, resources, prompts, and questions to a person."""

import json
from typing import Any

import pytest

from tests.trajectory.world import World
from trajectory.assembly import Assembler
from trajectory.call import Call, CallKind
from trajectory.dialects.mcp import with_answer
from trajectory.exchange import Exchange
from trajectory.reader import read_records

HEADERS = {"mcp-session-id": "S", "mcp-protocol-version": "2025-11-25"}
TASK = {"taskId": "t1", "status": "working", "createdAt": "x", "lastUpdatedAt": "x", "ttl": 60000}
RESULT = {"content": [{"type": "text", "text": "THE RESULT"}], "isError": False}


def rpc(world: World, method: str, parameters: Any, result: Any, number: int = 1) -> Exchange:
    asked = {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}
    answer = {"jsonrpc": "2.0", "id": number, "result": result}
    return world.exchange("/mcp", asked, answer, headers=HEADERS)


def task_call(world: World) -> list[Exchange]:
    slow = {"name": "slow", "arguments": {"a": 1}, "task": {"ttl": 60000}}
    return [
        rpc(world, "tools/call", slow, {"task": TASK}),
        rpc(world, "tasks/get", {"taskId": "t1"}, {**TASK, "status": "completed"}, 2),
        rpc(world, "tasks/result", {"taskId": "t1"}, RESULT, 3),
    ]


def read(*exchanges: Exchange) -> list[Call]:
    return list(read_records(exchanges)[0])


def test_a_task_s_result_is_put_to_the_call_that_became_it() -> None:
    call, state, look_up = read(*task_call(World()))
    assert (state.kind, look_up.kind) == (CallKind.CONTROL, CallKind.CONTROL)
    assert call.dispatch is not None
    assert (call.dispatch.name, call.dispatch.arguments) == ("slow", {"a": 1})
    assert call.dispatch.result == RESULT
    assert call.ext["answer"] == "task"
    assert call.ext["task"] == TASK


def test_a_task_s_result_batches_later_is_a_step_of_its_own() -> None:
    first, _, last = task_call(World())
    (call,) = read(first)
    (look_up,) = read(last)
    assert call.dispatch is not None
    assert (call.dispatch.result, call.ext["answer"]) == (None, "elsewhere")
    assert look_up.dispatch is not None
    assert look_up.dispatch.name == "tasks/result"
    assert look_up.dispatch.arguments == {"taskId": "t1"}
    assert look_up.dispatch.result == RESULT
    placed = Assembler(b"k" * 32).assemble([call, look_up]).placed
    assert len({item.trajectory_id for item in placed}) == 1


def test_a_task_of_another_server_or_client_is_another_task() -> None:
    world = World()
    first, _, last = task_call(world)
    asked = json.loads(last.request.body)
    answer = {"jsonrpc": "2.0", "id": 3, "result": RESULT}
    other = world.exchange("/other/mcp", asked, answer, headers=HEADERS)
    call, look_up = read(first, other)
    assert call.dispatch is not None
    assert call.dispatch.result is None
    assert look_up.kind is CallKind.TOOL


@pytest.mark.parametrize(
    ("method", "parameters", "result", "event"),
    [
        (
            "resources/read",
            {"uri": "file:///a"},
            {"contents": [{"uri": "file:///a", "text": "A"}]},
            "retrieval",
        ),
        ("prompts/get", {"name": "p", "arguments": {"x": "1"}}, {"messages": []}, "prompt"),
    ],
)
def test_resources_and_prompts_are_steps_that_read(
    method: str, parameters: dict[str, Any], result: dict[str, Any], event: str
) -> None:
    (call,) = read(rpc(World(), method, {**parameters, "_meta": {"progressToken": 1}}, result))
    assert call.kind is CallKind.TOOL
    assert call.dispatch is not None
    assert (call.dispatch.name, call.dispatch.arguments) == (method, parameters)
    assert call.dispatch.result == result
    assert call.ext["event"] == event
    (placed,) = Assembler(b"k" * 32).assemble([call]).placed
    assert placed.side_effect == "read"


def test_bytes_of_a_resource_are_named_by_their_hash() -> None:
    blob = {"uri": "file:///a", "mimeType": "image/png", "blob": "aGVsbG8="}
    (call,) = read(rpc(World(), "resources/read", {"uri": "file:///a"}, {"contents": [blob]}))
    assert call.dispatch is not None
    text = json.dumps(call.dispatch.result)
    assert "sha256" in text
    assert "aGVsbG8" not in text


@pytest.mark.parametrize("action", ["accept", "decline"])
def test_what_a_person_answers_a_server_is_a_step(action: str) -> None:
    world = World()
    asked = {"message": "Which size?", "requestedSchema": {"type": "object", "properties": {}}}
    question = {"jsonrpc": "2.0", "id": 9, "method": "elicitation/create", "params": asked}
    answered = {"jsonrpc": "2.0", "id": 1, "result": RESULT}
    stream = b"".join(
        b"data: " + json.dumps(one).encode() + b"\n\n" for one in (question, answered)
    )
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}}
    told = {"action": action, **({"content": {"size": "L"}} if action == "accept" else {})}
    answer = {"jsonrpc": "2.0", "id": 9, "result": told}
    tool, person = read(
        world.exchange("/mcp", call, stream, headers=HEADERS),
        world.exchange("/mcp", answer, b"", status=202, headers=HEADERS),
    )
    assert tool.dispatch is not None
    assert tool.dispatch.result == RESULT
    assert person.dispatch is not None
    assert person.kind is CallKind.TOOL
    assert (person.dispatch.name, person.dispatch.arguments) == ("elicitation/create", asked)
    assert person.ext == {"event": "approval"}
    assert person.dispatch.result == told
    other = read(world.exchange("/mcp", {**answer, "id": 8}, b"", status=202, headers=HEADERS))
    assert [call.kind for call in other] == [CallKind.CONTROL]


def test_what_a_server_asks_its_client_s_model_is_a_step() -> None:
    world = World()
    asked = {
        "messages": [
            {
                "role": "user",
                "content": {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
            }
        ],
        "maxTokens": 50,
    }
    question = {"jsonrpc": "2.0", "id": 9, "method": "sampling/createMessage", "params": asked}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}}
    told = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "A lamp."}}
    stream = b"data: " + json.dumps(question).encode() + b"\n\n"
    tool, answered = read(
        world.exchange("/mcp", call, stream, headers=HEADERS),
        world.exchange(
            "/mcp",
            {"jsonrpc": "2.0", "id": 9, "result": told},
            b"",
            status=202,
            headers=HEADERS,
        ),
    )
    assert answered.dispatch is not None
    assert (answered.kind, answered.ext) == (CallKind.TOOL, {"event": "sampling"})
    assert (answered.dispatch.name, answered.dispatch.result) == ("sampling/createMessage", told)
    sent = json.dumps(answered.dispatch.arguments)
    assert '"maxTokens": 50' in sent
    assert "aGVsbG8" not in sent
    assert "sha256" in sent
    placed = Assembler(b"k" * 32).assemble([tool, answered]).placed
    assert len({one.trajectory_id for one in placed}) == 1


def test_what_others_brought_stays_with_the_exchange_that_is_read_alone() -> None:
    world = World()
    question = {
        "jsonrpc": "2.0",
        "id": 9,
        "method": "elicitation/create",
        "params": {"message": "Which size?", "_meta": {"progressToken": 1}},
    }
    stream = b"data: " + json.dumps(question).encode() + b"\n\n"
    told = {"jsonrpc": "2.0", "id": 9, "result": {"action": "accept"}}
    records = [
        *task_call(world),
        world.exchange("/mcp", b"", stream, method="GET", headers=HEADERS),
        world.exchange("/mcp", told, b"", status=202, headers=HEADERS),
    ]
    calls = [one for one in read(*records) if one.kind is CallKind.TOOL]
    assert [one.dispatch.name for one in calls if one.dispatch] == ["slow", "elicitation/create"]
    for call in calls:
        (alone,) = read(with_answer(call.exchange, call))
        assert (alone.kind, alone.dispatch) == (call.kind, call.dispatch)
