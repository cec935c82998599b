"""Background responses: the answer comes with a look-up, soon, batches later, again, or never."""

import json
from typing import Any

import pytest

from tests.trajectory.world import World, user
from trajectory.assembly import Assembler, AssemblerState
from trajectory.assembly.result import PlacedCall
from trajectory.call import Call, CallKind
from trajectory.dialects.registry import read_exchange
from trajectory.exchange import ExchangeOutcome

KEY = b"k" * 32
WORDS = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Lamps are good."}],
}


def response(status: str, *output: Any, name: str = "resp_1", **more: Any) -> dict[str, Any]:
    head = {"id": name, "object": "response", "model": "m-1", "background": True, "tools": []}
    return {**head, "status": status, "output": list(output), **more}


def posted(world: World, given: Any, answer: Any, **more: Any) -> Call:
    settings = {name: more.pop(name) for name in ("outcome", "status") if name in more}
    body = {"model": "m", "input": given, "background": True, **more}
    return read_exchange(world.exchange("/v1/responses", body, answer, **settings))


def looked_up(world: World, answer: Any, name: str = "resp_1") -> Call:
    path = f"/v1/responses/{name}"
    return read_exchange(world.exchange(path, b"", answer, method="GET"))


def sse(*events: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def in_batches(calls: list[Call], size: int) -> list[PlacedCall]:
    placed: list[PlacedCall] = []
    state = AssemblerState()
    for at in range(0, len(calls), size):
        assembler = Assembler(KEY, state)
        placed += assembler.assemble(calls[at : at + size]).placed
        state = AssemblerState.from_json(json.loads(json.dumps(assembler.state.to_json())))
    return placed


@pytest.mark.parametrize("size", [1, 9])
@pytest.mark.parametrize("streamed", [False, True])
def test_the_answer_of_a_look_up_goes_on_from_what_was_asked(size: int, streamed: bool) -> None:
    world = World()
    whole = response("completed", WORDS)
    told: Any = whole
    if streamed:
        told = sse({"type": "response.completed", "response": whole, "sequence_number": 9})
    calls = [
        posted(world, "an essay about lamps", response("queued")),
        looked_up(world, response("in_progress")),
        looked_up(world, told),
        looked_up(world, whole),
        posted(
            world,
            "shorter",
            response("completed", WORDS, name="resp_2"),
            previous_response_id="resp_1",
        ),
    ]
    assert [call.kind for call in calls] == [
        CallKind.MODEL,
        CallKind.CONTROL,
        CallKind.MODEL,
        CallKind.MODEL,
        CallKind.MODEL,
    ]
    assert calls[0].ext["answer"] == "elsewhere"
    asked, answer, again, after = in_batches(calls, size)
    assert asked.role_in_graph == "queued"
    assert answer.call.output is not None
    assert (answer.parent_step_id, answer.role_in_graph) == (asked.step_id, "agent")
    assert (answer.context_keep, answer.new_messages) == (1, ())
    assert again.duplicate_of == answer.step_id
    assert after.parent_step_id == answer.step_id
    assert after.context_keep == 2
    assert len({item.trajectory_id for item in (asked, answer, again, after)}) == 1


@pytest.mark.parametrize("size", [1, 9])
def test_a_chat_that_xai_deferred_has_the_answer_that_its_look_up_brings(size: int) -> None:
    world = World()
    question = user("an essay about lamps")
    words = {"role": "assistant", "content": "Lamps are good."}
    chat = {
        "id": "c0",
        "object": "chat.completion",
        "model": "m-1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": words}],
        "usage": {"prompt_tokens": 27, "completion_tokens": 48, "total_tokens": 75},
    }
    path, told = "/v1/chat/deferred-completion/f15c-114e", {"request_id": "f15c-114e"}
    body = {"model": "m", "deferred": True, "messages": [question]}
    calls = [
        read_exchange(world.exchange("/v1/chat/completions", body, told)),
        read_exchange(world.exchange(path, b"", b"", method="GET", status=202)),
        read_exchange(world.exchange(path, b"", {"error": "x"}, method="GET", status=500)),
        read_exchange(world.exchange(path, b"", chat, method="GET")),
        world.chat([question, words, user("shorter")], words, tools=None),
    ]
    kinds = [call.kind for call in calls]
    assert kinds == [CallKind.MODEL, *[CallKind.CONTROL] * 2, *[CallKind.MODEL] * 2]
    asked, answer, after = in_batches(calls, size)
    assert (asked.role_in_graph, asked.call.response_id) == ("queued", "f15c-114e")
    assert (answer.parent_step_id, answer.role_in_graph) == (asked.step_id, "agent")
    assert (answer.call.usage.input_tokens, answer.call.usage.output_tokens) == (27, 48)
    assert (answer.context_keep, answer.new_messages) == (1, ())
    assert (answer.call.response_id, answer.call.finish_reason) == ("c0", "stop")
    assert after.parent_step_id == answer.step_id
    assert len({one.trajectory_id for one in (asked, answer, after)}) == 1


def test_what_a_broken_stream_brought_is_no_part_of_what_the_look_up_answers() -> None:
    world = World()
    begun = sse(
        {"type": "response.created", "response": response("in_progress")},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Lamps"},
    )
    calls = [
        posted(world, "lamps?", begun, stream=True, outcome=ExchangeOutcome.CLIENT_ABORT),
        looked_up(world, response("completed", WORDS)),
    ]
    cut, answer = Assembler(KEY).assemble(calls).placed
    assert cut.role_in_graph == "discarded"
    assert answer.role_in_graph == "agent"
    assert (answer.parent_step_id, answer.context_keep) == (cut.step_id, 1)


def test_a_background_response_that_failed_is_a_failed_attempt() -> None:
    world = World()
    error = {"code": "server_error", "message": "The model broke"}
    calls = [
        posted(world, "lamps?", response("queued")),
        looked_up(world, response("failed", error=error)),
    ]
    asked, failed = Assembler(KEY).assemble(calls).placed
    assert (asked.role_in_graph, failed.role_in_graph) == ("queued", "discarded")
    assert failed.call.error == "server_error: The model broke"


def test_a_look_up_of_an_answer_that_was_given_at_once_says_nothing_new() -> None:
    world = World()
    plain = {**response("completed", WORDS), "background": False}
    calls = [posted(world, "lamps?", plain), looked_up(world, plain)]
    assert [call.kind for call in calls] == [CallKind.MODEL, CallKind.CONTROL]
    calls = [
        posted(world, "lamps?", response("completed", WORDS)),
        looked_up(world, response("completed", WORDS)),
    ]
    first, second = Assembler(KEY).assemble(calls).placed
    assert second.duplicate_of == first.step_id


@pytest.mark.parametrize("name", ["previous_response_id", "conversation"])
def test_a_call_with_only_what_is_new_that_failed_is_repeated(name: str) -> None:
    world = World()
    more = {name: "resp_1" if name == "previous_response_id" else "conv_1"}
    own = more if name == "conversation" else {}
    first = posted(world, "lamps?", response("completed", WORDS), **own)
    other = posted(world, [user("tables?")], response("completed", WORDS, name="r2"), **more)
    failed = posted(world, [user("and chairs?")], {"error": {"message": "x"}}, status=500, **more)
    again = posted(world, [user("and chairs?")], response("completed", WORDS, name="r3"), **more)
    one, two, three, four = Assembler(KEY).assemble([first, other, failed, again]).placed
    assert (three.role_in_graph, four.retry_of, two.retry_of) == ("discarded", three.step_id, None)
    assert four.parent_step_id == three.parent_step_id
    assert one.trajectory_id == four.trajectory_id
