"""Whom the calls of a trace belong to: spans in any order, in many exports, of many applications."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest

from tests.trajectory.telemetry.test_calls import CHAT, CLIENT, TRACE, exchange, span, text
from trajectory.assembly import Assembler
from trajectory.call import Call
from trajectory.errors import IntegrityError
from trajectory.exchange import ClientIdentity, Exchange, HttpRequest, HttpResponse
from trajectory.reader import read_records
from trajectory.telemetry.trace_people import IDLE_SECONDS, NamedCalls, TracePeople

KEY = b"k" * 32
SAID = {**CHAT, "gen_ai.input.messages": json.dumps([text("user", "hi")])}
CHAIN = {"openinference.span.kind": "CHAIN"}


def below(parent: int, number: int, attributes: dict[str, Any]) -> dict[str, Any]:
    return {**span(number, attributes), "parentSpanId": f"{parent:016x}"}


def around(one: dict[str, Any], first: int, last: int) -> dict[str, Any]:
    """Return a span that was under way from one call to another."""
    start, end = span(first, {}), span(last, {})
    times = {
        "startTimeUnixNano": start["startTimeUnixNano"],
        "endTimeUnixNano": end["endTimeUnixNano"],
    }
    return {**one, **times}


def export(*spans: dict[str, Any], client: ClientIdentity = CLIENT, **changes: Any) -> list[Call]:
    body = {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}
    record = exchange(json.dumps(body).encode(), client=client, **changes)
    return [*read_records([record])[0]]


def users(calls: Sequence[Call]) -> list[str | None]:
    return [call.end_user for call in calls if call.span is not None]


def told(named: NamedCalls) -> dict[str, str | None]:
    return {one.step_id: one.end_user for one in named.people}


def step_of(call: Call) -> str:
    (placed,) = Assembler(KEY).assemble([call]).placed
    return placed.step_id


def test_a_call_is_of_the_user_whom_its_span_or_the_nearest_around_it_names() -> None:
    inner = [
        below(1, 2, CHAIN), below(2, 3, SAID), below(2, 4, {**SAID, "enduser.id": "ida"}),
        below(2, 5, {**SAID, "user.id": 18}),
    ]  # fmt: skip
    outer = span(1, {"http.route": "/ask", "user.id": 17})
    named = TracePeople(KEY).take(export(outer, *inner, span(6, SAID)))
    assert users(named.calls) == ["17", "ida", "18", None]


def test_spans_that_are_numbered_anew_in_each_trace_name_nobody_of_another() -> None:
    traces = [
        [{**span(1, {"user.id": user}), "traceId": trace}, {**below(1, 2, SAID), "traceId": trace}]
        for user, trace in ((17, "a" * 32), (18, "b" * 32))
    ]
    named = TracePeople(KEY).take(export(*traces[0], *traces[1]))
    assert users(named.calls) == ["17", "18"]


def test_spans_without_a_trace_are_of_one_export() -> None:
    people, bare = TracePeople(KEY), {"traceId": "0" * 32}
    first = [{**span(1, {"user.id": 17}), **bare}, {**below(1, 2, SAID), **bare}]
    assert users(people.take(export(*first)).calls) == ["17"]
    other = export({**below(1, 3, SAID), **bare}, exchange_id="1" * 32)
    assert users(people.take(other).calls) == [None]


def test_in_whatever_order_exports_come_the_nearest_user_holds_at_last() -> None:
    exports = [
        export(below(3, 4, SAID), below(1, 5, SAID)),
        export(around(below(2, 3, CHAIN), 3, 5)),
        export(around(below(1, 2, {"user.id": "near"}), 2, 5)),
        export(around(span(1, {"user.id": "far"}), 1, 6)),
    ]
    inner, outer = (step_of(call) for call in exports[0] if call.span is not None)
    for order in permutations(exports):
        people, last = TracePeople(KEY), dict[str, str | None]()
        for one in order:
            last |= told(people.take(one))
        assert last == {inner: "near", outer: "far"}


def test_a_call_that_comes_after_the_span_around_it_is_of_its_user() -> None:
    people = TracePeople(KEY)
    assert people.take(export(span(1, {"user.id": "u"}))).people == ()
    named = people.take(export(below(1, 2, SAID)))
    assert users(named.calls) == ["u"]
    assert [one.before for one in named.people] == [()]
    assert people.take(export(below(1, 2, SAID))).people == ()  # an exporter that repeats


def test_a_user_told_at_last_comes_with_the_one_before() -> None:
    people = TracePeople(KEY)
    own, call = export(below(2, 3, SAID))
    people.take([own, call])
    (first,) = people.take(export(around(span(1, {"user.id": "far"}), 1, 4))).people
    (then,) = people.take(export(below(1, 2, {"user.id": "near", "enduser.id": "too"}))).people
    assert (first.end_user, first.before) == ("far", ())
    assert (then.end_user, then.also_named, then.before) == ("near", ("too",), ("far",))
    assert first.step_id == then.step_id == step_of(call)


def test_where_a_span_is_missing_those_count_that_were_under_way() -> None:
    people = TracePeople(KEY)
    people.take(export(below(9, 4, SAID)))
    beside = people.take(export(around(below(8, 2, {"user.id": "earlier"}), 2, 3)))
    assert beside.people == ()
    named = people.take(export(around(below(8, 3, {"user.id": "here"}), 3, 5)))
    assert [one.end_user for one in named.people] == ["here"]
    # It turns out that nobody around the call names anybody.
    named = people.take(export(around(below(8, 9, CHAIN), 3, 5), around(span(8, CHAIN), 1, 6)))
    assert [(one.end_user, one.also_named, one.before) for one in named.people] == [
        (None, (), ("here",))
    ]


def test_traces_are_told_apart_by_tenant_and_application() -> None:
    people = TracePeople(KEY)
    people.take(export(below(1, 2, SAID)))
    for client in (replace(CLIENT, tenant_id="other"), replace(CLIENT, app_id="other")):
        assert people.take(export(span(1, {"user.id": "u"}), client=client)).people == ()
    assert len(people.take(export(span(1, {"user.id": "u"}))).people) == 1


def test_what_the_exporter_says_of_the_user_stays_beside_the_trace() -> None:
    people = TracePeople(KEY)
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [below(1, 2, SAID)]}]}]}
    headers = (("content-type", "application/json"), ("x-headrace-end-user", "kim"))
    request = HttpRequest("POST", "/v1/traces", "", headers, json.dumps(body).encode())
    assert users(people.take([*read_records([exchange(b"", request=request)])[0]]).calls) == ["kim"]
    (late,) = people.take(export(span(1, {"user.id": "u"}))).people
    assert (late.end_user, late.also_named) == (None, ("u",))


def passed_through(parent: int, **body: Any) -> Exchange:
    said = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **body}
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}
        ],
    }
    headers = (
        ("content-type", "application/json"),
        ("traceparent", f"00-{TRACE}-{parent:016x}-01"),
    )
    return exchange(
        b"",
        mode="base_url",
        exchange_id="2" * 32,
        request=HttpRequest("POST", "/v1/chat/completions", "", headers, json.dumps(said).encode()),
        response=HttpResponse(200, headers[:1], json.dumps(answer).encode()),
    )


def test_a_call_that_passed_the_gateway_within_a_trace_belongs_to_it() -> None:
    people = TracePeople(KEY)
    calls = [*read_records([passed_through(2)])[0]]
    assert people.take(calls).people == ()
    named = people.take(export(below(1, 2, CHAIN), span(1, {"user.id": "u"})))
    assert told(named) == {step_of(calls[0]): "u"}
    own = [*read_records([passed_through(2, user="jo")])[0]]
    assert users(TracePeople(KEY).take([*own, *export(span(2, {"user.id": "u"}))]).calls) == ["jo"]


def test_what_is_remembered_survives_a_restart() -> None:
    people = TracePeople(KEY)
    people.take(export(below(1, 2, SAID), around(below(9, 5, {"user.id": "else"}), 5, 6)))
    again = TracePeople(KEY)
    again.restore(json.loads(json.dumps(people.to_json())))
    assert (again.to_json(), len(again)) == (people.to_json(), len(people))
    late = export(span(1, {"user.id": "u"}))
    assert again.take(late).people == people.take(late).people != ()
    with pytest.raises(IntegrityError):
        TracePeople(KEY).restore({"version": 9})


def test_memory_is_bounded_by_number_and_by_time() -> None:
    people, late = TracePeople(KEY, 4), {"user.id": "u"}
    traces = [{"traceId": digit * 32} for digit in "abc"]
    for one in traces:
        people.take(export({**below(1, 2, SAID), **one}))
        assert len(people) <= 4
    found = [len(people.take(export({**span(1, late), **one})).people) for one in traces[::-1]]
    assert found == [1, 0, 0]
    people, at = TracePeople(KEY), datetime(2026, 9, 21, 15, tzinfo=UTC)
    people.take(export({**below(1, 2, SAID), **traces[0]}, started_at=at))
    then = at + timedelta(seconds=IDLE_SECONDS + 1)
    people.take(export({**below(1, 2, SAID), **traces[1]}, started_at=then))
    people.take(export(span(9, {}), started_at=then))
    assert people.take(export({**span(1, late), **traces[0]}, started_at=then)).people == ()
    assert len(people.take(export({**span(1, late), **traces[1]}, started_at=then)).people) == 1


def test_a_clock_that_was_ahead_once_forgets_no_trace() -> None:
    people, at = TracePeople(KEY), datetime(2026, 9, 21, 15, tzinfo=UTC)
    people.take(export(below(1, 2, SAID), started_at=at))
    ahead = {**span(9, {}), "traceId": "9" * 32}
    people.take(export(ahead, started_at=at + timedelta(days=900)))
    assert len(people.take(export(span(1, {"user.id": "u"}), started_at=at)).people) == 1
    assert len(people) == 4
    for day in (2, 4, 6):  # nor is what it dated remembered until then
        people.take(export(span(5, {}), started_at=at + timedelta(days=day)))
    assert len(people) == 4


def test_hostile_spans_end_nothing() -> None:
    loop = [below(2, 1, CHAIN), below(1, 2, CHAIN), below(1, 3, SAID), below(4, 4, SAID)]
    named = TracePeople(KEY).take(export(*loop, below(7, 5, {"user.id": "u"})))
    assert users(named.calls) == [None, None]


def test_a_call_that_is_released_from_quarantine_is_of_the_user_who_was_told_meanwhile() -> None:
    traces = TracePeople(KEY)
    (held,) = (one for one in traces.take(export(below(1, 2, SAID))).calls if one.span)
    traces.take(export(span(1, {"user.id": 17})))
    own = held.exchange
    again = replace(held, exchange=replace(own, exchange_id="e" * 32, released_of=own.exchange_id))
    named = traces.take([again])
    assert (users(named.calls), named.people) == (["17"], ())
