"""The tap's lines and messages: any split of the bytes, matched answers, bounded memory."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.clients.keys import KeyRegistry
from proxy.recording.recorder import Recorder
from proxy.spool import Cursor, SpoolReader, SpoolWriter
from proxy.tap import LineCutter, MessageRecorder
from proxy.tap.messages import OPEN_REQUESTS, Server
from proxy.telemetry.counters import Counters
from trajectory.call import Call, CallKind
from trajectory.dialects.registry import read_calls
from trajectory.exchange import Exchange, ExchangeOutcome

KEY = b"s" * 32


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"bc", b"x" * 9]), max_size=30), st.data())
def test_lines_do_not_depend_on_the_split(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    places = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    cutter, lines, before = LineCutter(8), [], 0
    for place in [*places, len(whole)]:
        lines += cutter.feed(whole[before:place])
        before = place
    other = LineCutter(8)
    assert lines == other.feed(whole)
    assert cutter.dropped == other.dropped
    assert all(0 < len(line) <= 8 for line in lines)


class Recording:
    """A recorder over a real spool, and what was recorded."""

    def __init__(self, home: Path) -> None:
        registry = KeyRegistry.load(home / "keys.json")
        key = registry.create(tenant_id="acme", app_id="bot", purposes=("train_sft",))
        self.registry, self.key_id = registry, key.key.key_id
        self.identity = key.key.identity
        self.counters = Counters()
        self.spool = SpoolWriter(home / "spool", KEY)
        self.reader = SpoolReader(home / "spool", KEY)
        server = Server(key.key.identity, "calculator", "tap-1", trace_parent="00-" + "a" * 32)
        self.messages = MessageRecorder(Recorder(self.spool, self.counters), registry, server)

    def client(self, **message: Any) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.messages.message(line, from_client=True)

    def server(self, **message: Any) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.messages.message(line, from_client=False)

    def exchanges(self) -> list[Exchange]:
        batch = self.reader.take(Cursor(), limit=100_000)
        return [record for record in batch.records if isinstance(record, Exchange)]

    def calls(self) -> list[Call]:
        return [call for exchange in self.exchanges() for call in read_calls(exchange)]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Recording]:
    made = Recording(tmp_path)
    yield made
    made.spool.close()


def test_a_tool_call_is_a_tool_step(run: Recording) -> None:
    run.client(id=1, method="tools/call", params={"name": "add", "arguments": {"a": 1}})
    run.server(method="notifications/progress", params={"progress": 1})
    run.server(id=1, result={"content": [{"type": "text", "text": "2"}]})
    progress, call = run.calls()
    assert (progress.kind, progress.ext["origin"]) == (CallKind.CONTROL, "server")
    assert call.kind is CallKind.TOOL
    assert call.dispatch is not None
    assert (call.dispatch.name, call.dispatch.arguments) == ("add", {"a": 1})
    assert call.dispatch.result == {"content": [{"type": "text", "text": "2"}]}
    assert call.dispatch.server == "stdio://calculator/mcp"
    assert [hint.source for hint in call.hints] == ["client:mcp-session-id"]
    exchange = call.exchange
    assert (exchange.mode, exchange.route, exchange.client.tenant_id) == (
        "stdio",
        "calculator",
        "acme",
    )


def test_answers_come_in_any_order_and_both_sides_may_ask(run: Recording) -> None:
    run.client(id=1, method="tools/call", params={"name": "one"})
    run.client(id="1", method="tools/call", params={"name": "two"})
    run.server(id=1, method="sampling/createMessage", params={})
    run.server(id="1", result={"content": "second"})
    run.client(id=1, result={"role": "assistant"})
    run.server(id=1, error={"code": -32000, "message": "no"})
    two, asked, one = run.calls()
    assert (two.dispatch and two.dispatch.name, two.dispatch and two.dispatch.result) == (
        "two",
        {"content": "second"},
    )
    assert asked.ext == {"event": "sampling"}
    assert asked.dispatch is not None
    assert (asked.dispatch.name, asked.dispatch.result) == (
        "sampling/createMessage",
        {"role": "assistant"},
    )
    assert one.dispatch is not None
    assert (one.dispatch.name, one.error) == ("one", "-32000: no")


def test_what_a_server_asks_a_person_is_a_step(run: Recording) -> None:
    question = {"message": "Which size?", "requestedSchema": {"type": "object"}}
    run.server(id=4, method="elicitation/create", params={**question, "_meta": {"a": 1}})
    run.client(id=4, result={"action": "accept", "content": {"size": "L"}})
    run.server(id=5, method="elicitation/create", params=question)
    run.client(id=5, error={"code": -32601, "message": "nobody is here"})
    run.server(id=6, method="roots/list")
    run.client(id=6, result={"roots": []})
    asked, refused, roots = run.calls()
    assert asked.kind is CallKind.TOOL
    assert asked.ext == {"event": "approval", "params": {"_meta": {"a": 1}}}
    assert asked.dispatch is not None
    assert (asked.dispatch.name, asked.dispatch.arguments) == ("elicitation/create", question)
    assert asked.dispatch.result == {"action": "accept", "content": {"size": "L"}}
    assert (refused.error, refused.dispatch and refused.dispatch.is_error) == (
        "-32601: nobody is here",
        True,
    )
    assert (roots.kind, roots.ext["origin"]) == (CallKind.CONTROL, "server")


def test_what_is_no_json_is_kept_as_opaque(run: Recording) -> None:
    run.messages.message(b"Server is up!", from_client=False)
    run.messages.message(b"[" * 100_000, from_client=True)
    assert [call.problem for call in run.calls()] == ["request:not-json", "request:nested-too-deep"]


def test_what_is_never_answered_ends_with_the_run(run: Recording) -> None:
    run.client(id=1, method="tools/call", params={"name": "add"})
    run.client(id=2, method="tools/call", params={"name": "add"})
    run.client(method="notifications/cancelled", params={"requestId": 1})
    run.messages.close(ExchangeOutcome.UPSTREAM_ABORT)
    run.server(id=2, result={})
    outcomes = [exchange.outcome for exchange in run.exchanges()]
    assert outcomes == [
        ExchangeOutcome.CLIENT_ABORT,
        ExchangeOutcome.COMPLETE,
        ExchangeOutcome.UPSTREAM_ABORT,
    ]


def test_of_two_requests_under_one_id_neither_gets_the_other_s_answer(run: Recording) -> None:
    for name in ("lend", "add"):
        run.client(id=1, method="tools/call", params={"name": name})
    run.server(id=1, result={"content": [{"type": "text", "text": "2"}]})
    run.server(id=1, result={"content": [{"type": "text", "text": "lent"}]})
    run.client(id=1, method="tools/call", params={"name": "again"})
    run.server(id=1, result={"content": [{"type": "text", "text": "right"}]})
    told = {
        call.dispatch.name: (call.exchange.outcome, call.dispatch.result)
        for call in run.calls()
        if call.dispatch is not None
    }
    assert told["lend"] == told["add"] == (ExchangeOutcome.UPSTREAM_ABORT, None)
    assert told["again"][0] is ExchangeOutcome.COMPLETE
    assert "right" in json.dumps(told["again"][1])


def test_taps_of_one_name_do_not_mix(tmp_path: Path) -> None:
    one = Recording(tmp_path)
    about = Server(one.identity, "calculator", "tap-2")
    with SpoolWriter(tmp_path / "spool", KEY) as spool:
        other = MessageRecorder(Recorder(spool, one.counters), one.registry, about)
        line = json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add"}}
        )
        one.client(id=1, method="tools/call", params={"name": "add"})
        other.message(line.encode(), from_client=True)
        other.message(b'{"jsonrpc":"2.0","id":1,"result":{"of":"the other"}}', from_client=False)
        one.server(id=1, result={"of": "one"})
    one.spool.close()
    told = {
        call.hints[0].value: call.dispatch.result
        for call in one.calls()
        if call.dispatch is not None
    }
    assert told == {"tap-1": {"of": "one"}, "tap-2": {"of": "the other"}}


def test_open_requests_are_bounded(run: Recording) -> None:
    for number in range(OPEN_REQUESTS + 3):
        run.client(id=number, method="ping")
    assert len(run.exchanges()) == 3


def test_a_revoked_key_records_nothing_more(run: Recording) -> None:
    run.registry.revoke(run.key_id)
    run.client(method="notifications/initialized")
    assert run.exchanges() == []
    assert run.counters.uncaptured["key-revoked"] == 1


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_lines_are_survived(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    line = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["id", "method", "params", "result", "requestId"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=6,
    ).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=9)
    run = Recording(tmp_path_factory.mktemp("tap"))
    lines = data.draw(st.lists(st.tuples(line, st.booleans()), max_size=5))
    for text, from_client in lines:
        run.messages.message(text, from_client=from_client)
    run.messages.close(ExchangeOutcome.UPSTREAM_ABORT)
    run.spool.close()
    assert len(run.exchanges()) <= len(lines)
    run.calls()
