"""Whatever the bytes, an exchange is read without raising and the result can be written down."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.trajectories.replay import SCENARIOS, load, with_response_body
from tests.trajectory.world import World, said, user
from trajectory.assembly import Assembler
from trajectory.call import Call, CallKind
from trajectory.canonical import canonical_json
from trajectory.dialects.registry import read_exchange
from trajectory.exchange import Exchange, ExchangeOutcome

KEY = b"k" * 32
GOLDEN = [exchange for name in SCENARIOS for exchange in load(name)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def check(call: Call) -> None:
    """Everything that goes on can be named by hash and written as UTF-8."""
    for message in (*call.context, *([call.output] if call.output else [])):
        canonical_json(message.to_json()).decode("utf-8")
    for value in (call.tools, call.sampling, call.ext):
        canonical_json(value).decode("utf-8")
    for text in (call.model_requested, call.response_id, call.error, call.end_user):
        (text or "").encode("utf-8")
    assert (call.problem is not None) is (call.kind is CallKind.OPAQUE)
    if call.dispatch is not None:
        canonical_json([call.dispatch.arguments, call.dispatch.result]).decode("utf-8")
    Assembler(KEY).assemble([call])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_mutated_traffic(data: st.DataObject) -> None:
    exchange = data.draw(st.sampled_from(GOLDEN))
    assert exchange.response is not None
    request = data.draw(mutations(exchange.request.body))
    response = data.draw(mutations(exchange.response.body))
    outcome = data.draw(st.sampled_from(list(ExchangeOutcome)))
    mutated = replace(
        with_response_body(exchange, response),
        request=replace(exchange.request, body=request),
        outcome=outcome,
    )
    check(read_exchange(mutated))


def mutations(body: bytes) -> st.SearchStrategy[bytes]:
    positions = st.integers(0, len(body))
    cut = positions.map(lambda at: body[:at])
    flipped = st.tuples(positions, st.binary(min_size=1, max_size=4)).map(
        lambda change: body[: change[0]] + change[1] + body[change[0] + len(change[1]) :]
    )
    return st.just(body) | cut | flipped | JSON.map(lambda value: json.dumps(value).encode())


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_fields_of_the_wrong_type(data: st.DataObject) -> None:
    exchange = data.draw(st.sampled_from(GOLDEN))
    request = swapped(data, exchange.request.body)
    mutated = replace(exchange, request=replace(exchange.request, body=request))
    if exchange.response is not None:
        mutated = with_response_body(mutated, swapped(data, exchange.response.body))
    check(read_exchange(mutated))


def swapped(data: st.DataObject, body: bytes) -> bytes:
    """Replace one value, somewhere inside, by any other."""
    try:
        value = json.loads(body)
    except ValueError:
        return body
    places = []

    def walk(node: object) -> None:
        if isinstance(node, dict):
            places.extend((node, key) for key in node)
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            places.extend((node, index) for index in range(len(node)))  # type: ignore[misc]
            for child in node:
                walk(child)

    walk(value)
    if places:
        holder, key = data.draw(st.sampled_from(places))
        holder[key] = data.draw(JSON)
    return json.dumps(value).encode()


@pytest.mark.parametrize("exchange", GOLDEN[:4] + GOLDEN[-6:])
def test_a_response_cut_anywhere(exchange: Exchange) -> None:
    assert exchange.response is not None
    body = exchange.response.body
    for length in range(0, len(body), 7):
        cut = replace(
            with_response_body(exchange, body[:length]), outcome=ExchangeOutcome.UPSTREAM_ABORT
        )
        call = read_exchange(cut)
        assert call.kind is not CallKind.OPAQUE
        check(call)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "request:not-json"),
        (b"\xff\xfe", "request:not-utf8"),
        (b"[1]", "request:not-an-object"),
        (b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "request:nested-too-deep"),
        (b'{"messages":' + b"[" * 300 + b"]" * 300 + b"}", "request:nested-too-deep"),
        (b'{"n": ' + b"9" * 5000 + b"}", "request:not-json"),
    ],
)
def test_unreadable_requests_are_opaque(body: bytes, problem: str) -> None:
    call = read_exchange(World().exchange("/v1/chat/completions", body, {}))
    assert (call.kind, call.problem) == (CallKind.OPAQUE, problem)
    check(call)


def test_numbers_and_characters_that_json_cannot_hold() -> None:
    body = rb'{"messages":[{"role":"user","content":"\ud800x"}],"seed":NaN,"top_p":1e999,"model":"\udfff"}'
    call = read_exchange(World().exchange("/v1/chat/completions", body, {}))
    assert call.sampling == {"seed": "NaN", "top_p": "1e999"}
    assert call.context[0].text() == "�x"
    check(call)


def test_a_complete_but_unreadable_answer_is_opaque() -> None:
    call = read_exchange(World().exchange("/v1/chat/completions", {"messages": []}, b"<html>"))
    assert (call.kind, call.problem) == (CallKind.OPAQUE, "response:not-json")


def test_what_is_not_known_and_what_was_refused() -> None:
    world = World()
    unknown = read_exchange(world.exchange("/v1/audio/speech", {"input": "x"}, {}))
    assert (unknown.kind, unknown.problem) == (CallKind.OPAQUE, "dialect:unknown")
    refused = world.exchange(
        "/v1/chat/completions", {}, {}, status=401, outcome=ExchangeOutcome.REFUSED
    )
    assert read_exchange(refused).kind is CallKind.CONTROL
    note = replace(world.exchange("/v1/chat/completions", b"", None), capture_note="opt-out")
    assert read_exchange(note).problem == "capture:opt-out"


def test_no_response_is_a_failed_step() -> None:
    exchange = World().exchange(
        "/v1/chat/completions",
        {"messages": [user("x")]},
        None,
        outcome=ExchangeOutcome.CLIENT_ABORT,
    )
    call = read_exchange(exchange)
    assert (call.kind, call.output, call.error) == (
        CallKind.MODEL,
        None,
        "no response: client_abort",
    )


def test_errors_of_every_provider_shape() -> None:
    world = World()
    bodies = {
        '{"error":{"type":"invalid_request_error","code":"x","message":"m"}}': "invalid_request_error: x: m",
        '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}': "overloaded_error: Overloaded",
        '{"detail":"Not Found"}': "Not Found",
        "<html>Bad gateway</html>": "<html>Bad gateway</html>",
        "": "HTTP 500",
    }
    for body, text in bodies.items():
        exchange = world.exchange(
            "/v1/chat/completions", {"messages": [user("x")]}, body.encode(), status=500
        )
        assert read_exchange(exchange).error == text


def test_an_error_inside_a_stream() -> None:
    body = (
        b'data: {"id":"c","choices":[{"delta":{"content":"Hel"}}]}\n\n'
        b'data: {"error":{"message":"overloaded","type":"server_error"}}\n\n'
    )
    call = read_exchange(World().exchange("/v1/chat/completions", {"messages": []}, body))
    assert call.error == "server_error: overloaded"
    assert call.output is not None
    assert call.output.text() == "Hel"
    assert Assembler(KEY).assemble([call]).placed[0].role_in_graph == "discarded"


def test_media_is_named_not_kept() -> None:
    url = "data:image/png;base64,aGVsbG8="
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "what?"}]
    call = World().chat([{"role": "user", "content": content}], said("a"))
    part = call.context[0].to_json()["parts"]
    assert part == [
        {
            "type": "media",
            "media_type": "image/png",
            "sha256": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
            "size_bytes": 5,
        },
        {"type": "text", "text": "what?"},
    ]
