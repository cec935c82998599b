"""WebSocket messages as the gateway keeps them, and the turns that conversations are read as."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.calls.replay import load
from tests.trajectory.dialects.test_hostile import check, mutations
from tests.trajectory.world import World
from trajectory.call import Call, CallKind
from trajectory.dialects.registry import read_calls
from trajectory.dialects.websocket import pack_message, read_messages
from trajectory.exchange import Exchange, ExchangeOutcome

MESSAGES = st.lists(st.tuples(st.booleans(), st.booleans(), st.binary(max_size=9)), max_size=9)


def bodies(messages: list[tuple[bool, bool, bytes]]) -> tuple[bytes, bytes]:
    sides = {True: b"", False: b""}
    for number, (from_client, is_text, content) in enumerate(messages):
        sides[from_client] += pack_message(number, 1e9 + number, content, is_text=is_text)
    return sides[True], sides[False]


@given(MESSAGES)
def test_messages_come_back_in_their_order(messages: list[tuple[bool, bool, bytes]]) -> None:
    found = read_messages(*bodies(messages))
    assert [(m.from_client, m.is_text, m.content) for m in found] == messages


@given(MESSAGES, st.data())
def test_bodies_cut_anywhere_give_what_came_whole(
    messages: list[tuple[bool, bool, bytes]], data: st.DataObject
) -> None:
    given_, made = bodies(messages)
    given_ = given_[: data.draw(st.integers(0, len(given_)))]
    found = read_messages(given_, made)
    assert [(m.from_client, m.is_text, m.content) for m in found if not m.from_client] == [
        message for message in messages if not message[0]
    ]


def conversation(path: str, *messages: tuple[bool, Any], **settings: Any) -> list[Call]:
    encoded = [(client, True, json.dumps(value).encode()) for client, value in messages]
    from_client, from_server = bodies(encoded)
    exchange = World().exchange(
        path,
        from_client,
        from_server,
        method="GET",
        status=101,
        response_headers={"upgrade": "websocket"},
        **settings,
    )
    return list(read_calls(exchange))


def test_turns_are_read_one_by_one() -> None:
    created = {"type": "response.created", "response": {"id": "r1", "status": "in_progress"}}
    done = {"type": "response.completed", "response": {"id": "r1", "output": []}}
    calls = conversation(
        "/v1/responses",
        (True, {"type": "response.create", "model": "m", "input": "one"}),
        (True, {"type": "response.create", "response": {"model": "m", "input": "two"}}),
        (False, created),
        (False, done),
        (False, {"type": "response.created", "response": {"id": "r2"}}),
        outcome=ExchangeOutcome.CLIENT_ABORT,
    )
    assert [call.context[0].text() for call in calls] == ["one", "two"]
    assert [call.response_id for call in calls] == ["r1", "r2"]
    assert [call.exchange.outcome for call in calls] == [
        ExchangeOutcome.COMPLETE,
        ExchangeOutcome.CLIENT_ABORT,
    ]
    first, second = (call.exchange.exchange_id for call in calls)
    assert first == "0" * 32
    assert second[:12] == first[:12]
    assert second != first


def test_a_turn_without_an_answer_is_a_failed_step() -> None:
    (call,) = conversation(
        "/v1/responses", (True, {"type": "response.create", "model": "m", "input": "one"})
    )
    assert (call.kind, call.error) == (CallKind.MODEL, "no response: upstream_abort")


def test_a_conversation_in_which_nothing_was_asked_is_control() -> None:
    (call,) = conversation("/v1/realtime", (False, {"type": "session.created", "session": {}}))
    assert call.kind is CallKind.CONTROL


def test_what_was_not_kept_is_opaque_with_its_reason() -> None:
    exchange = World().exchange(
        "/v1/responses", b"", b"", status=101, response_headers={"upgrade": "websocket"}
    )
    (call,) = read_calls(replace(exchange, capture_note="opt-out"))
    assert (call.kind, call.problem) == (CallKind.OPAQUE, "capture:opt-out")


def test_frames_that_are_none_are_opaque() -> None:
    exchange = World().exchange(
        "/v1/realtime",
        b"\x09" * 40,
        b"",
        status=101,
        response_headers={"upgrade": "websocket"},
    )
    (call,) = read_calls(exchange)
    assert (call.kind, call.problem) == (CallKind.OPAQUE, "websocket:frames")


def test_a_failed_realtime_response_says_why() -> None:
    error = {"type": "server_error", "code": "x", "message": "m"}
    details = {"type": "failed", "error": error}
    response = {"id": "r1", "status": "failed", "status_details": details, "output": []}
    (call,) = conversation("/v1/realtime", (False, {"type": "response.done", "response": response}))
    assert call.error == "server_error: x: m"


GOLDEN = [
    exchange
    for name in ("openai_responses_websocket", "openai_realtime")
    for exchange, _ in load(name)
]


@given(st.data())
def test_mutated_conversations_never_break_the_reader(data: st.DataObject) -> None:
    exchange: Exchange = data.draw(st.sampled_from(GOLDEN))
    assert exchange.response is not None
    response = replace(exchange.response, body=data.draw(mutations(exchange.response.body)))
    request = replace(exchange.request, body=data.draw(mutations(exchange.request.body)))
    for call in read_calls(replace(exchange, request=request, response=response)):
        check(call)


@given(st.data())
def test_fields_of_the_wrong_type_never_break_the_reader(data: st.DataObject) -> None:
    exchange = GOLDEN[-1]
    assert exchange.response is not None
    messages = read_messages(exchange.request.body, exchange.response.body)
    chosen = data.draw(st.integers(0, len(messages) - 1))
    sides = {True: b"", False: b""}
    for message in messages:
        content = message.content
        if message.number == chosen:
            value = json.loads(content)
            name = data.draw(st.sampled_from(sorted(value)))
            other = st.none() | st.integers() | st.text(max_size=3) | st.just([]) | st.just({})
            value[name] = data.draw(other)
            content = json.dumps(value).encode()
        sides[message.from_client] += pack_message(message.number, 1e9, content, is_text=True)
    response = replace(exchange.response, body=sides[False])
    request = replace(exchange.request, body=sides[True])
    for call in read_calls(replace(exchange, request=request, response=response)):
        check(call)
        assert call.kind is not CallKind.OPAQUE


@pytest.mark.parametrize("exchange", GOLDEN)
def test_a_conversation_that_breaks_off_gives_what_came(exchange: Exchange) -> None:
    assert exchange.response is not None
    for length in range(0, len(exchange.response.body), 97):
        response = replace(exchange.response, body=exchange.response.body[:length])
        cut = replace(exchange, response=response, outcome=ExchangeOutcome.UPSTREAM_ABORT)
        for call in read_calls(cut):
            check(call)
            assert call.kind is not CallKind.OPAQUE
