"""Model answers that are judged: golden wire files of every dialect, whole and streamed, at every cut."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.clients.shared_counters import SharedCounters
from proxy.guard import route
from proxy.guard.answer_judge import AnswerJudge, JudgedRest
from proxy.guard.approvals import Approval, Approvals
from proxy.guard.document import Action, rules_of
from proxy.guard.response_answers import ResponsesAnswers
from proxy.guard.route import CallGuard, GuardTerms
from proxy.telemetry.counters import Counters
from tests.golden.calls.replay import SCENARIOS, load
from tests.support.guard import APPROVALS_KEY
from tests.trajectory.world import CLIENT
from trajectory.call import Call
from trajectory.dialects.errors import Shape
from trajectory.dialects.registry import read_calls
from trajectory.exchange import Exchange

OTHERS = {"google.interactions", "mistral.conversations"}
"""Dialects that nobody guards so far: their answers with calls are refused."""


def _calls(exchange: Exchange) -> list[Call]:
    return [one for one in read_calls(exchange) if one.output and one.output.tool_calls()]


def _golden() -> Iterator[Any]:
    for name in SCENARIOS:
        for number, (exchange, _) in enumerate(load(name)):
            is_http = exchange.response is not None and exchange.response.status == 200
            if is_http and "websocket" not in name and "realtime" not in name:
                for call in _calls(exchange):
                    yield pytest.param(exchange, call, id=f"{name}-{number}")


GOLDEN = [*_golden()]
READ = [
    one for one in GOLDEN if one.values[1].dialect not in OTHERS and "encodings" not in str(one.id)
]
UNREAD = [one for one in GOLDEN if one not in READ]


class Scene:
    """A guard with rules, and what it counted."""

    def __init__(self, folder: Path, *rules: dict[str, Any], **spec: Any) -> None:
        document = Action.model_validate(
            {
                "apiVersion": "headrace/v1",
                "kind": "Action",
                "metadata": {"name": "test"},
                "spec": {"answers": "*", "rules": rules, **spec},
            }
        )
        found = rules_of([document])
        assert found is not None
        self.approvals = Approvals(folder / "approvals.sqlite", APPROVALS_KEY)
        self.counters = Counters()
        terms = GuardTerms({}, self.approvals, "b2:test", {"models": found})
        self.ledger = SharedCounters(folder / "limits.sqlite")
        self.guard = CallGuard(terms, self.ledger, self.counters)
        self.sent: list[bytes] = []

    def judge(
        self, *fields: tuple[bytes, bytes], clock: Callable[[], float] | None = None
    ) -> AnswerJudge:
        return AnswerJudge(
            self.guard,
            "models",
            CLIENT,
            shape=Shape.OPENAI,
            fields=fields,
            **({"clock": clock} if clock else {}),
        )

    def told(self, exchange: Exchange, *, cut: int = 1 << 30) -> bytes:
        """Return what the client gets of a captured answer that comes in pieces of a length."""
        assert exchange.response is not None
        fields = [(n.encode(), v.encode()) for n, v in exchange.response.headers]
        return asyncio.run(self.run(exchange.response.body, fields, cut))

    async def run(
        self, body: bytes, fields: list[tuple[bytes, bytes]], cut: int = 1 << 30
    ) -> bytes:
        judge = self.judge(*fields)
        if not judge.streams:
            rest = await judge.whole(body, step_id="s", gone=lambda: False)
            return self._body(rest)
        out = [judge.feed(body[at : at + cut]) for at in range(0, len(body), cut)]
        rest = await judge.rest(step_id="s", send=self.sent.append, gone=lambda: False)
        return b"".join([*out, self._body(rest)])

    @staticmethod
    def _body(rest: JudgedRest) -> bytes:
        return rest.body if rest.refusal is None else rest.refusal.body


def read_again(exchange: Exchange, body: bytes) -> Call:
    assert exchange.response is not None
    (call,) = read_calls(replace(exchange, response=replace(exchange.response, body=body)))
    return call


def test_golden_answers_with_calls_are_there() -> None:
    told = {one.values[1].dialect for one in READ}
    assert told == {
        *("openai.chat", "openai.responses", "anthropic.messages", "google.gemini", "ollama"),
        *("bedrock.converse", "bedrock.invoke"),
    }
    assert len(READ) >= 20


@pytest.mark.parametrize(("exchange", "call"), READ)
def test_what_may_be_called_passes_byte_for_byte(
    exchange: Exchange, call: Call, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, {"name": "others", "match": {"tools": "other"}, "decision": "deny"})
    assert exchange.response is not None
    for cut in (3, 1 << 30):
        assert scene.told(exchange, cut=cut) == exchange.response.body
    assert scene.counters.guard == {}
    _ = call


@pytest.mark.parametrize(("exchange", "call"), READ)
def test_in_a_denied_calls_place_stands_a_text(
    exchange: Exchange, call: Call, tmp_path: Path
) -> None:
    rule = {"name": "no", "match": {"tools": "*"}, "decision": "deny", "reason": "Ask first."}
    scene = Scene(tmp_path, rule)
    assert call.output is not None
    names = [one.name for one in call.output.tool_calls()]
    for cut in (11, 1 << 30):
        said = read_again(exchange, scene.told(exchange, cut=cut))
        assert said.error is None
        assert said.output is not None
        assert said.output.tool_calls() == ()
        for name in names:
            if "." in name:
                continue  # the provider has made this call itself
            text = f"[Call of {name}] Headrace: rule no denied this call. Ask first."
            assert text in said.output.text()
        assert said.output.text().startswith(call.output.text())
        assert said.finish_reason not in ("tool_calls", "tool_use", "function_call")
        assert (said.usage, said.response_id) == (call.usage, call.response_id)


@pytest.mark.parametrize(("exchange", "call"), UNREAD)
@pytest.mark.parametrize("on_failure", ["refuse", "pass"])
def test_what_nobody_can_read_is_refused_or_passes_counted(
    exchange: Exchange, call: Call, on_failure: str, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, on_failure=on_failure)
    assert exchange.response is not None
    for cut in (7, 1 << 30):
        told = scene.told(exchange, cut=cut)
        if on_failure == "pass":
            assert told == exchange.response.body
        else:
            assert b"cannot be read for certain" in told
            assert not any(
                json.dumps({"name": one.name})[1:-1].encode() in told
                for one in (call.output and call.output.tool_calls()) or ()
            )
    what = "passed" if on_failure == "pass" else "refused"
    assert scene.counters.guard["models", f"unreadable_{what}"] >= 2


@pytest.mark.parametrize(("exchange", "call"), READ)
def test_other_calls_of_the_answer_stay(exchange: Exchange, call: Call, tmp_path: Path) -> None:
    assert call.output is not None
    first, *others = call.output.tool_calls()
    if not others or any(one.name == first.name for one in others):
        return
    rule = {"name": "no", "match": {"tools": first.name}, "decision": "deny"}
    said = read_again(exchange, Scene(tmp_path, rule).told(exchange, cut=5))
    assert said.output is not None
    assert said.output.tool_calls() == tuple(others)
    assert f"[Call of {first.name}]" in said.output.text()
    assert said.finish_reason == call.finish_reason


def chat(*pieces: dict[str, Any], finish: str | None = "tool_calls") -> bytes:
    """Return the events of a chat whose deltas these are."""
    chunks: list[Any] = [
        {"choices": [{"index": 0, "delta": piece, "finish_reason": None}]} for piece in pieces
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in chunks)


def called(name: str, arguments: str, **more: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        "tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function, **more}]
    }


SSE = [(b"content-type", b"text/event-stream")]
JSON = [(b"content-type", b"application/json; charset=utf-8")]
NO_DELETES = {"name": "no", "match": {"tools": "delete_file"}, "decision": "deny"}
FREE = {"name": "free", "match": {"tools": "read_file"}, "decision": "allow"}


@pytest.mark.parametrize(
    ("name", "body", "fields"),
    [
        ("another case", chat(called("Delete-File", "{}")), SSE),
        ("arguments twice", chat(called("read_file", '{"a":1,"A":2}')), SSE),
        ("arguments that are none", chat(called("read_file", '{"a":')), SSE),
        ("look-alike letters", chat(called("delete_f\u0456le", "{}")), SSE),
        ("a name in pieces", chat(called("delete_file", ""), called("", "{}")), SSE),
        ("a call behind a call", chat(called("read_file", "{}"), called("delete_file", "{}", id="c2")), SSE),
        ("no name", chat({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}), SSE),
        ("a key twice", b'data: {"choices":[],"choices":[{"delta":{"tool_calls":[{}]}}]}\n\n', SSE),
        ("lines that end in CR", chat(called("delete_file", "{}")).replace(b"\n", b"\r"), SSE),
        ("an empty line of CRLF", chat(called("delete_file", "{}")).replace(b"\n\n", b"\n\r\n"), SSE),
        ("no last empty line", chat(called("delete_file", "{}"))[:-2], SSE),
        ("a whole answer in a stream", b'data: {"choices":[{"message":'
         + json.dumps(called("delete_file", "{}")).encode() + b"}]}\n\n", SSE),
        ("another dialect", b'data: {"choices":[]}\n\nevent: content_block_start\ndata: {"type":'
         b'"content_block_start","index":0,"content_block":{"type":"tool_use","name":"delete_file",'
         b'"input":{}}}\n\n', SSE),
        ("an unknown place", b'{"required_action":{"tool_calls":[{"function":{"name":"delete_file",'
         b'"arguments":"{}"}}]}}', JSON),
        ("escaped keys", b'{"choices":[{"message":{"\\u0074ool_calls":[{"function":{"name":'
         b'"delete_file","arguments":"{}"}}]}}]}', JSON),
        ("a body of unknown kind", b'{"tool_calls":[{"name":"delete_file"}]}',
         [(b"content-type", b"application/octet-stream")]),
        ("no kind", b'{"tool_calls":[{"name":"delete_file"}]}', []),
        ("compressed", b"delete_file", [*JSON, (b"content-encoding", b"br")]),
        ("arguments of no block", b'data: {"type":"content_block_delta","index":3,"delta":{"type":'
         b'"input_json_delta","partial_json":"delete_file"}}\n\n', SSE),
        ("two ways in responses", b"".join(
            b"data: " + json.dumps(one).encode() + b"\n\n" for one in (
                {"type": "response.output_item.added", "output_index": 0, "item": {
                    "type": "function_call", "name": "read_file", "arguments": ""}},
                {"type": "response.output_item.done", "output_index": 0, "item": {
                    "type": "function_call", "name": "read_file", "arguments": "{}"}},
                {"type": "response.completed", "response": {"output": [{
                    "type": "function_call", "name": "delete_file", "arguments": "{}"}]}},
            )), SSE),
    ],
)  # fmt: skip
def test_no_way_round(name: str, body: bytes, fields: Any, tmp_path: Path) -> None:
    scene = Scene(tmp_path, NO_DELETES, FREE, otherwise="deny")
    for cut in (1, 1 << 30):
        told = asyncio.run(scene.run(body, fields, cut))
        assert b'"delete' not in told.lower(), name
        assert b"partial_json" not in told
        assert b'"name"' not in told or b"read_file" in told
        assert b"Headrace: " in told


def test_a_held_call_waits_and_the_client_is_told(tmp_path: Path) -> None:
    rule = {"name": "ask", "match": {"tools": "*"}, "decision": "hold", "wait_seconds": 60}
    body = chat({"content": "Well."}, called("pay", '{"amount": 5}'))
    for approve in (True, False):
        scene = Scene(tmp_path, rule)

        async def answered(scene: Scene = scene, approve: bool = approve) -> bytes:
            work = asyncio.create_task(scene.run(body, SSE))
            while not (waiting := scene.approvals.list()):  # noqa: ASYNC110 - a file says it
                await asyncio.sleep(0.01)
            assert scene.approvals.asked(waiting[0].approval_id) == {
                "tool": "pay",
                "arguments": {"amount": 5},
            }
            assert not work.done()
            scene.approvals.decide(waiting[0].approval_id, approve=approve, who="ada", reason="No.")
            return await work

        told = asyncio.run(answered())
        assert scene.sent == [b": Headrace: a tool call waits for a person.\n\n"]
        if approve:
            assert told == body
        else:
            assert b"a person denied this call: No." in told
            assert b"tool_calls" not in told


def test_an_approval_that_another_call_used_at_the_last_moment_lets_no_second_one_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = {"name": "ask", "match": {"tools": "*"}, "decision": "hold", "wait_seconds": 60}
    scene, now = Scene(tmp_path, rule), [0.0]

    async def changed(_: CallGuard, row: Approval, *__: Any) -> Approval:
        scene.approvals.decide(row.approval_id, approve=True, who="ada")
        assert scene.approvals.claim(row.approval_id)  # by the same call of another answer
        now[0] += 60
        return scene.approvals.get(row.approval_id)

    clock = SimpleNamespace(monotonic=lambda: now[0], time=time.time)
    monkeypatch.setattr(route, "time", clock)
    monkeypatch.setattr(CallGuard, "_changed", changed)
    told = asyncio.run(scene.run(chat(called("pay", '{"amount": 5}')), SSE))
    assert b"nobody answered in time" in told
    assert b"tool_calls" not in told


def test_while_arguments_are_written_the_client_hears_that_its_answer_goes_on(
    tmp_path: Path,
) -> None:
    now = [0.0]
    scene = Scene(tmp_path)
    judge = scene.judge(*SSE, clock=lambda: now[0])
    assert judge.feed(chat(called("pay", "{"), finish=None)) == b""
    now[0] = 11.0
    more = chat(called("", "}"), finish=None)
    assert judge.feed(more) == b": Headrace: a tool call waits for a person.\n\n"
    assert judge.feed(more) == b""


@pytest.mark.parametrize(
    "body",
    [
        b'{"data":[{"embedding":[0.1,1e-7]}],"object":"list"}',
        b'{"error":{"message":"tool_calls are not supported"}}',
        b'{"type":"message","stop_reason":"end_turn","content":[{"type":"server_tool_use","id":"s",'
        b'"name":"web_search","input":{"query":"delete_file"}}]}',
        b'{"object":"response","output":[{"type":"web_search_call","action":{"query":"q"}}],'
        b'"tools":[{"type":"function","name":"delete_file"}],"tool_choice":"auto"}',
    ],
)
def test_what_the_client_does_not_call_passes(body: bytes, tmp_path: Path) -> None:
    scene = Scene(tmp_path, otherwise="deny")
    assert asyncio.run(scene.run(body, JSON)) == body
    stream = b"event: ping\ndata: " + body + b"\n\n"
    assert asyncio.run(scene.run(stream, SSE)) == stream


def test_a_limit_counts_apart_from_that_of_the_tools_route(tmp_path: Path) -> None:
    budget = {"calls": 1, "seconds": 86400}
    scene = Scene(
        tmp_path, {"name": "few", "match": {"tools": "*"}, "decision": "limit", "budget": budget}
    )
    body = chat(called("mail", "{}"))
    assert asyncio.run(scene.run(body, SSE)) == body
    assert b"has let through all calls" in asyncio.run(scene.run(body, SSE))
    scene.ledger.close()


def test_of_a_streamed_response_its_id_and_the_denied_calls_are_kept() -> None:
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add"}
    other = {**item, "id": "fc_2", "call_id": "call_2"}
    whole = {"object": "response", "id": "resp_1", "output": [item, other]}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.output_item.added", "output_index": 1, "item": other},
        {"type": "response.completed", "response": whole},
    ]
    found = ResponsesAnswers().unanswered(events, {0: "denied"})
    assert found == ("resp_1", [("function_call", "call_1")])
    assert ResponsesAnswers().unanswered([whole], {1: "denied"}) == (
        "resp_1",
        [("function_call", "call_2")],
    )
