"""Lines to a stdio server that are judged: no way round, no order lost, nothing said within a line."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from proxy.clients.shared_counters import SharedCounters
from proxy.guard.approvals import Approvals
from proxy.guard.document import Action, rules_of
from proxy.guard.route import CallDecision, CallGuard, GuardTerms, RouteRules
from proxy.tap.line_guard import LineGuard, LineWriter
from proxy.telemetry.counters import Counters
from tests.support.guard import APPROVALS_KEY
from tests.trajectory.world import CLIENT

RULES: list[dict[str, Any]] = [
    {"name": "no-deletes", "match": {"tools": "delete_file"}, "decision": "deny"},
    {"name": "payments", "match": {"tools": "pay"}, "decision": "hold", "wait_seconds": 60},
    {"name": "mails", "match": {"tools": "mail"}, "decision": "limit",
     "budget": {"calls": 1, "seconds": 86400}},
    {"name": "transfers", "match": {"tools": "transfer"}, "decision": "hold", "wait_seconds": 60,
     "approver": "client"},
    {"name": "soon", "match": {"tools": "read_file"}, "decision": "dry-run"},
]  # fmt: skip


class Scene:
    """A guard, what its server got, and what its client and the lake heard."""

    def __init__(self, folder: Path) -> None:
        document = Action.model_validate(
            {
                "apiVersion": "headrace/v1",
                "kind": "Action",
                "metadata": {"name": "test"},
                "spec": {"taps": "files", "rules": RULES},
            }
        )
        rules = rules_of([document])
        assert rules is not None
        self.approvals = Approvals(folder / "approvals.sqlite", APPROVALS_KEY)
        terms = GuardTerms({"files": RouteRules(rules)}, self.approvals, "b2:test")
        self.ledger = SharedCounters(folder / "limits.sqlite")
        self.counters = Counters()
        guard = CallGuard(terms, self.ledger, self.counters)
        self.lines = LineGuard(guard, "files", CLIENT, self.counters, self)
        self.server: list[bytes] = []
        self.client: list[dict[str, Any]] = []
        self.decisions: list[tuple[str, str]] = []
        self.lines.to_server = self._to_server
        self.lines.to_client = self._to_client

    def _to_server(self, data: bytes) -> bool:
        self.server.append(data)
        return True

    def _to_client(self, data: bytes) -> bool:
        self.client.append(json.loads(data))
        return True

    def message(self, line: bytes, *, from_client: bool) -> str:
        return f"step-{len(line)}" if from_client else ""

    def decided(self, decisions: Sequence[CallDecision], step_id: str) -> None:
        self.decisions += [(one.ruling.value, step_id) for one in decisions]

    def send(self, data: bytes) -> None:
        if told := self.lines.feed(data):
            self.server.append(told)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.lines.close()
    made.ledger.close()


def until(holds: Callable[[], Any]) -> Any:
    """Return what is true in the end."""
    deadline = time.monotonic() + 60
    while not (found := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def call(tool: str, request_id: int | None = 1, **arguments: Any) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": "tools/call"}
    if request_id is not None:
        message["id"] = request_id
    return (
        json.dumps({**message, "params": {"name": tool, "arguments": arguments}}).encode() + b"\n"
    )


def test_a_fault_of_recording_costs_the_record_and_never_the_pipe(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(line: bytes, *, from_client: bool) -> str:
        raise RuntimeError

    monkeypatch.setattr(scene, "message", broken)
    scene.send(call("list_files", 1) + call("delete_file", 2))
    assert b"".join(scene.server) == call("list_files", 1)
    assert [one["id"] for one in scene.client] == [2]
    assert scene.counters.faults == 3  # two lines, and what the client was told


def test_lines_that_are_let_through_pass_as_they_came_at_every_cut(scene: Scene) -> None:
    lines = call("read_file", path="/a").replace(b"\n", b"\r\n") + b"\n" + call("list_files", 2)
    for at in range(len(lines)):
        scene.send(lines[:at])
        scene.send(lines[at:])
        assert b"".join(scene.server) == lines
        scene.server.clear()
    assert scene.client == []
    assert {one for one, _ in scene.decisions} == {"allow", "dry-run"}


def test_a_denied_call_is_answered_and_not_sent(scene: Scene) -> None:
    scene.send(call("delete_file", 7) + call("delete_file", None))
    assert scene.server == []
    (told,) = scene.client
    assert (told["id"], told["result"]["isError"]) == (7, True)
    assert "rule no-deletes denied this call" in told["result"]["content"][0]["text"]


def test_a_limit_holds_for_all_runs(scene: Scene, tmp_path: Path) -> None:
    scene.send(call("mail") + call("mail", 2))
    other = Scene(tmp_path)
    other.send(call("mail", 3))
    other.lines.close()
    other.ledger.close()
    assert scene.server == [call("mail")]
    assert other.server == []
    assert [one["id"] for one in (*scene.client, *other.client)] == [2, 3]


def initialize(**capabilities: Any) -> bytes:
    params = {"capabilities": capabilities}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    return json.dumps(message).encode() + b"\n"


def answer(question_id: str, action: str) -> bytes:
    message = {"jsonrpc": "2.0", "id": question_id, "result": {"action": action}}
    return json.dumps(message).encode() + b"\n"


@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
def test_the_client_s_user_decides_where_rule_and_client_say_so(scene: Scene, action: str) -> None:
    held = call("transfer", 4, amount=5)
    scene.send(initialize(elicitation={}) + held)
    (asked,) = until(lambda: scene.client)
    assert asked["method"] == "elicitation/create"
    scene.send(answer("headrace-approval-1", "accept"))
    scene.send(answer(asked["id"], action))
    if action == "accept":
        until(lambda: scene.server[1:])
        assert scene.server == [initialize(elicitation={}), held]
    else:
        told = until(lambda: scene.client[1:])[0]
        assert "a person denied this call" in told["result"]["content"][0]["text"]
        assert scene.server == [initialize(elicitation={})]
    (row,) = scene.approvals.list("all")
    assert row.decided_by == f"client:{CLIENT.key_id}"


def test_another_run_s_answer_decides_nothing(scene: Scene, tmp_path: Path) -> None:
    other = Scene(tmp_path)
    scene.send(initialize(elicitation={}) + call("transfer", 4, amount=5))
    (asked,) = until(lambda: scene.client)
    other.send(initialize(elicitation={}) + answer(asked["id"], "accept"))
    until(lambda: other.counters.guard["files", "answer_refused"])
    assert other.server == [initialize(elicitation={})]
    (waiting,) = scene.approvals.list()
    scene.approvals.decide(waiting.approval_id, approve=True, who="ada")
    until(lambda: scene.server[1:])
    # An operator was faster: the client need not ask any more.
    (withdrawn,) = scene.client[1:]
    assert withdrawn["method"] == "notifications/cancelled"
    assert withdrawn["params"]["requestId"] == asked["id"]
    other.lines.close()
    other.ledger.close()


def test_a_client_that_cannot_ask_and_an_operator_s_rule_wait_for_an_operator(
    scene: Scene,
) -> None:
    scene.send(initialize() + call("transfer", 4, amount=5))
    (waiting,) = until(scene.approvals.list)
    scene.approvals.decide(waiting.approval_id, approve=True, who="ada")
    until(lambda: scene.server[1:])
    scene.send(initialize(elicitation={}) + call("pay", 5, amount=5))
    (waiting,) = until(scene.approvals.list)
    scene.approvals.decide(waiting.approval_id, approve=False, who="ada")
    until(lambda: scene.client)
    assert [one.get("method") for one in scene.client] == [None]


@pytest.mark.parametrize("approve", [True, False])
def test_a_held_call_waits_and_others_go_on(scene: Scene, approve: bool) -> None:
    held = call("pay", 4, amount=5).replace(b'{"name"', b'{"_meta": {"progressToken": "t"}, "name"')
    scene.send(held + call("list_files", 5))
    assert scene.server == [call("list_files", 5)]
    (waiting,) = until(scene.approvals.list)
    scene.approvals.decide(waiting.approval_id, approve=approve, who="ada", reason="No.")
    # The client may be told more than once that its call waits.
    until(lambda: len(scene.server) == 2 or any("result" in one for one in scene.client))
    assert scene.client[0]["method"] == "notifications/progress"
    if approve:
        assert scene.server[1] == held
    else:
        assert "a person denied this call: No." in str(scene.client[-1]["result"])


def test_a_cancelled_call_waits_no_more(scene: Scene) -> None:
    scene.send(call("pay", 6, amount=1))
    (waiting,) = until(scene.approvals.list)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 6}}
    scene.send(json.dumps(cancel).encode() + b"\n")
    scene.approvals.decide(waiting.approval_id, approve=True, who="ada")
    scene.send(call("list_files", 8))
    until(lambda: scene.approvals.get(waiting.approval_id).status != "pending")
    scene.lines.close()
    assert call("pay", 6, amount=1) not in scene.server


DELETE = call("delete_file").strip()


@pytest.mark.parametrize(
    "line",
    [
        b"[" + call("list_files").strip() + b"," + DELETE + b"]",
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":\r' + DELETE + b"\r}",
        DELETE.replace(b'"method"', b'"method": "ping", "METHOD"'),
        DELETE.replace(b'"name"', b'"name": "list_files", "name"'),
        DELETE.replace(b"delete_file", b"Delete-File"),
        DELETE.replace(b"delete_file", "delete_f\u0456le".encode()),
        b"\xef\xbb\xbf" + DELETE,
        DELETE.decode().encode("utf-16"),
        b"\x00" + DELETE,
        DELETE.replace(b"tools/call", b"tools\\/call").replace(b"delete", b"\\u0064elete"),
        call("run", steps=[{"tool": "delete_file", "args": {}}]).strip(),
        b"x" * (17 * 1024 * 1024) + DELETE,
        b"not JSON",
    ],
)
def test_no_way_round(scene: Scene, line: bytes) -> None:
    for end in (b"\n", b"\r\n"):
        scene.send(line + end)
    scene.send(line)
    scene.server += [told for told in [scene.lines.end()] if told]
    assert scene.server == []
    assert scene.client


def test_own_lines_stand_between_those_that_pass() -> None:
    reads, writes = os.pipe()
    writer = LineWriter(writes)
    writer.passed(b'{"a"')
    writer.line(b"mine\n")
    writer.passed(b":1}")
    writer.passed(b"\n{")
    writer.passed(b"}\n")
    writer.line(b"last\n")
    writer.close()
    assert not writer.line(b"too late\n")
    os.close(writes)
    assert os.read(reads, 1000) == b'{"a":1}\nmine\n{}\nlast\n'
    os.close(reads)
