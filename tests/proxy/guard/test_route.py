"""Guarded routes over real sockets: what reaches the server, and what the client hears."""

import contextlib
import http.client
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from proxy.guard.approvals import Approval, Approvals
from tests.proxy.gateway_process import LISTENER, GatewayProcess
from tests.support.guard import GuardSetup
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json, plain, stream
from trajectory.exchange import Feedback

RULES: dict[str, Any] = {
    "effects": {"read_*": "read", "delete_*": "destructive"},
    "rules": [
        {
            "name": "no-deletes",
            "match": {"tools": "delete_*"},
            "decision": "deny",
            "severity": "high",
            "reason": "Files are kept.",
        },
        {"name": "payments", "match": {"tools": "pay"}, "decision": "hold", "wait_seconds": 30},
        {
            "name": "mails",
            "match": {"tools": "mail"},
            "decision": "limit",
            "budget": {"calls": 2, "seconds": 86400},
        },
        {
            "name": "memos",
            "match": {"tools": "memo"},
            "decision": "limit",
            "budget": {"calls": 2, "seconds": 86400},
        },
        {"name": "soon", "match": {"tools": "read_*"}, "decision": "dry-run"},
    ],
}


def script(request: ReceivedRequest) -> Reply:
    """Answer as an MCP server does."""
    message = json.loads(request.body) if request.body else {}
    if request.method != "POST" or isinstance(message, list):
        return as_json([])
    if "id" not in message:
        return Reply([b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"])
    result = {"content": [{"type": "text", "text": "done"}]}
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    if "streamed" in request.target:
        return stream([b"event: message\ndata: " + json.dumps(answer).encode() + b"\n\n"])
    return as_json(answer)


@dataclass
class Scene:
    """A gateway before an MCP server."""

    gateway: GatewayProcess
    upstream: Upstream
    approvals: Approvals

    def post(self, body: Any, path: str = "/tools/mcp", **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return httpx.post(
            self.gateway.url + path,
            content=content,
            headers={
                "authorization": f"Bearer {self.gateway.key}",
                "content-type": "application/json",
                "accept": "application/json, text/event-stream",
                **{name.replace("_", "-"): value for name, value in headers.items()},
            },
            timeout=30,
            trust_env=False,
        )

    def pending(self) -> Approval:
        """Return the call that waits, once one does."""
        while not (waiting := self.approvals.list()):
            time.sleep(0.01)
        return waiting[0]

    def metrics(self) -> str:
        """Return what the gateway has counted."""
        return httpx.get(self.gateway.admin + "/metrics", trust_env=False).text

    def sent(self) -> list[ReceivedRequest]:
        """Return what has reached the server since last asked."""
        seen, self.upstream.seen[:] = [*self.upstream.seen], []
        return seen


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    home = tmp_path_factory.mktemp("guard")
    setup = GuardSetup(home / "approvals.sqlite", RULES)
    with Upstream(script) as upstream:
        route = {"name": "tools", "upstream": upstream.url, "kind": "tool"}
        with GatewayProcess(home, settings={"routes": [route]}, guard=setup) as gateway:
            yield Scene(gateway, upstream, setup.approvals())


def call(tool: str, request_id: int | None = 1, **arguments: Any) -> dict[str, Any]:
    message: dict[str, Any] = {
        "jsonrpc": "2.0",
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }
    return message if request_id is None else {**message, "id": request_id}


def test_a_call_that_is_let_through_goes_on_byte_for_byte(scene: Scene) -> None:
    body = b'{"id":7, "jsonrpc" : "2.0","method":"tools/call","params":{"name":"read_x","arguments":{}}}'
    assert scene.post(body).json()["id"] == 7
    (seen,) = scene.sent()
    assert seen.body == body


def test_a_denied_call_is_a_result_that_the_agent_reads(scene: Scene) -> None:
    answer = scene.post(call("delete_file", 3, path="/x"))
    assert answer.status_code == 200
    said = answer.json()
    assert (said["id"], said["result"]["isError"]) == (3, True)
    assert "rule no-deletes denied this call" in said["result"]["content"][0]["text"]
    assert "Files are kept." in said["result"]["content"][0]["text"]
    assert scene.sent() == []


def test_of_a_batch_with_a_denied_call_nothing_is_sent(scene: Scene) -> None:
    said = scene.post([call("read_x", 1), call("delete_x", 2), call("delete_x", None)]).json()
    assert [one["id"] for one in said] == [1, 2]
    assert "another call of this batch" in said[0]["result"]["content"][0]["text"]
    assert scene.sent() == []


def test_a_denied_notification_is_refused(scene: Scene) -> None:
    assert scene.post(call("delete_x", None)).status_code == 400
    assert scene.sent() == []


def test_what_cannot_be_read_for_certain_is_refused(scene: Scene) -> None:
    for body in (b"{", b'{"method":"ping","METHOD":"tools/call","id":1}', b'{"a":1,"a":2}'):
        answer = scene.post(body)
        assert answer.status_code == 400
        assert "judged before they are sent" in answer.text
    assert scene.sent() == []


def test_other_methods_and_the_sessions_stream_pass(scene: Scene) -> None:
    assert scene.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).status_code == 200
    headers = {"authorization": f"Bearer {scene.gateway.key}", "last-event-id": "4"}
    with httpx.Client(trust_env=False) as client:
        assert client.get(scene.gateway.url + "/tools/mcp", headers=headers).status_code == 200
    assert [one.method for one in scene.sent()] == ["POST", "GET"]


def test_a_limit_is_shared_by_all_sessions_of_a_key(scene: Scene) -> None:
    told = [scene.post(call("mail"), mcp_session_id=str(at)).json() for at in range(4)]
    assert [one["result"].get("isError", False) for one in told] == [False, False, True, True]
    assert len(scene.sent()) == 2


@contextlib.contextmanager
def in_background(work: Callable[[], Any]) -> Iterator[list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    yield found
    thread.join(250)
    assert not thread.is_alive()


def _told(answer: httpx.Response) -> list[dict[str, Any]]:
    """Return the messages of an answer, JSON or events."""
    if answer.headers["content-type"].startswith("application/json"):
        return [answer.json()]
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("path", ["/tools/mcp", "/tools/streamed"])
@pytest.mark.parametrize("approve", [True, False])
def test_a_held_call_waits_for_a_person(scene: Scene, path: str, approve: bool) -> None:
    asked = call("pay", 9, amount=5, path=path, approve=approve)
    asked["params"]["_meta"] = {"progressToken": "t"}
    with in_background(lambda: scene.post(asked, path)) as found:
        waiting = scene.pending()
        assert scene.sent() == []
        shown = scene.approvals.asked(waiting.approval_id)
        assert shown == {"tool": "pay", "arguments": asked["params"]["arguments"]}
        scene.approvals.decide(waiting.approval_id, approve=approve, who="ada", reason="Too much.")
    (answer,) = found
    *progress, last = _told(answer)
    if LISTENER.get() == "plain":
        assert [one["method"] for one in progress] == ["notifications/progress"]
        assert progress[0]["params"]["progressToken"] == "t"
        assert ": Headrace: this call waits for a person.\n\n" in answer.text
    assert last["id"] == 9
    text = last["result"]["content"][0]["text"]
    assert text == "done" if approve else "a person denied this call: Too much." in text
    assert len(scene.sent()) == int(approve)


def test_a_client_that_takes_no_stream_waits_for_json(scene: Scene) -> None:
    with in_background(
        lambda: scene.post(call("pay", 2, to="json"), accept="application/json")
    ) as found:
        scene.approvals.decide(scene.pending().approval_id, approve=True, who="ada")
    assert found[0].headers["content-type"] == "application/json"
    assert found[0].json()["result"]["content"][0]["text"] == "done"
    scene.sent()


def test_a_client_that_leaves_makes_no_call(scene: Scene) -> None:
    asked = call("pay", 2, to="gone")
    with httpx.Client(trust_env=False) as client, contextlib.suppress(httpx.TimeoutException):
        client.post(
            scene.gateway.url + "/tools/mcp",
            json=asked,
            headers={"authorization": f"Bearer {scene.gateway.key}"},
            timeout=httpx.Timeout(5, read=0.5),
        )
    waiting = scene.pending()
    while 'outcome="client_abort"' not in scene.metrics():
        time.sleep(0.02)
    scene.approvals.decide(waiting.approval_id, approve=True, who="ada")
    # The client asks again, and the approval is still good; once.
    assert scene.post(asked).json()["result"]["content"][0]["text"] == "done"
    assert len(scene.sent()) == 1
    assert scene.approvals.get(waiting.approval_id).status == "used"


def test_an_approval_is_kept_where_another_call_of_its_batch_is_denied(scene: Scene) -> None:
    batch = [call("pay", 1, to="first"), call("pay", 2, to="second")]
    with in_background(lambda: scene.post(batch, accept="application/json")) as found:
        first = scene.pending()
        scene.approvals.decide(first.approval_id, approve=True, who="ada")
        second = scene.pending()
        scene.approvals.decide(second.approval_id, approve=False, who="ada", reason="Too much.")
    texts = [one["result"]["content"][0]["text"] for one in found[0].json()]
    assert "another call of this batch was denied" in texts[0]
    assert "a person denied this call: Too much." in texts[1]
    assert scene.sent() == []
    assert scene.approvals.get(first.approval_id).status == "approved"
    # Asked again without the other one, nobody has to approve it again.
    answer = scene.post(call("pay", 3, to="first"), accept="application/json")
    assert answer.json()["result"]["content"][0]["text"] == "done"
    assert len(scene.sent()) == 1
    assert scene.approvals.get(first.approval_id).status == "used"


def test_two_equal_calls_of_a_batch_need_two_approvals(scene: Scene) -> None:
    batch = [call("pay", 1, to="twice"), call("pay", 2, to="twice")]
    with in_background(lambda: scene.post(batch, accept="application/json")):
        first = scene.pending()
        scene.approvals.decide(first.approval_id, approve=True, who="ada")
        second = scene.pending()
        assert scene.sent() == []
        scene.approvals.decide(second.approval_id, approve=True, who="ada")
    (seen,) = scene.sent()
    assert len(json.loads(seen.body)) == 2
    told = [scene.approvals.get(one.approval_id).status for one in (first, second)]
    assert told == ["used", "used"]


def test_a_key_that_ends_while_its_call_waits_makes_no_call(scene: Scene) -> None:
    created = scene.gateway.registry.create(tenant_id="acme", app_id="leaving")
    asked = call("pay", 1, to="leaving")
    headers = {"authorization": f"Bearer {created.secret}", "accept": "application/json"}
    with in_background(lambda: scene.post(asked, **headers)) as found:
        waiting = scene.pending()
        scene.gateway.registry.revoke(created.key.key_id)
    assert found[0].status_code == 401
    assert scene.sent() == []
    assert scene.approvals.get(waiting.approval_id).status == "pending"
    scene.approvals.decide(waiting.approval_id, approve=False, who="ada")


@pytest.mark.parametrize("streams", [False, True])
def test_a_key_that_ends_while_an_answer_waits_does_not_get_it(
    tmp_path: Path, streams: bool
) -> None:
    asks = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}

    def model(request: ReceivedRequest) -> Reply:
        if request.method == "GET":
            return as_json({"data": []})
        choice = {"index": 0, "finish_reason": "tool_calls"}
        if not streams:
            message = {"role": "assistant", "content": None, "tool_calls": [asks]}
            return as_json({"id": "r1", "choices": [{**choice, "message": message}]})
        chunk = {
            "id": "r1",
            "choices": [{**choice, "delta": {"tool_calls": [{"index": 0, **asks}]}}],
        }
        return stream([f"data: {json.dumps(chunk)}\n\n".encode(), b"data: [DONE]\n\n"])

    setup = GuardSetup(tmp_path / "approvals.sqlite", RULES, (), answers=("models",))
    approvals = setup.approvals()
    with Upstream(model) as upstream:
        settings = {"routes": [{"name": "models", "upstream": upstream.url}]}
        with GatewayProcess(tmp_path, settings=settings, guard=setup) as gateway:
            created = gateway.registry.create(tenant_id="acme", app_id="leaving")
            headers = {"authorization": f"Bearer {created.secret}"}
            client = httpx.Client(base_url=gateway.url, headers=headers, trust_env=False)

            def ask() -> bytes:
                try:
                    return client.post(
                        "/models/v1/chat/completions", json={"model": "m"}, timeout=60
                    ).content
                except httpx.RemoteProtocolError:  # its answer had begun
                    return b""

            with in_background(ask) as found:
                while not (waiting := approvals.list()):
                    time.sleep(0.01)
                gateway.registry.revoke(created.key.key_id)
                while client.get("/models/v1/models").status_code != 401:
                    time.sleep(0.01)
                approvals.decide(waiting[0].approval_id, approve=True, who="ada")
            assert b"pay" not in found[0]
            assert approvals.get(waiting[0].approval_id).status == "approved"
            client.close()


def test_calls_of_a_batch_that_is_refused_count_against_no_budget(scene: Scene) -> None:
    def texts(batch: list[Any]) -> list[str]:
        told = scene.post(batch, accept="application/json").json()
        return [one["result"]["content"][0]["text"] for one in told]

    memos = [call("memo", number) for number in (1, 2, 3)]
    assert "another call of this batch" in texts([memos[0], call("delete_x", 9)])[0]
    assert "has let through all calls" in texts(memos)[2]
    with in_background(lambda: texts([memos[0], call("pay", 9, to="memo")])) as found:
        scene.approvals.decide(scene.pending().approval_id, approve=False, who="ada")
    assert "another call of this batch" in found[0][0]
    assert scene.sent() == []
    assert scene.post(memos[:2], accept="application/json").json() == []
    assert len(scene.sent()) == 1
    assert "has let through all calls" in texts(memos[:1])[0]


def test_decisions_are_counted_and_told_to_the_lake(scene: Scene) -> None:
    scene.post(call("delete_file", 3, path="/marked"))
    scene.post(call("read_y", 4, path="/marked"))
    scene.post(b"{")
    exchanges: set[str] = set()
    signals: dict[str, dict[str, Any]] = {}
    while len(exchanges) < 2 or not exchanges <= {*signals}:
        for one in scene.gateway.records(1):
            if isinstance(one, Feedback):
                signals[one.target_id] = one.body
            elif b"/marked" in one.request.body:
                exchanges.add(one.exchange_id)
    told = sorted((said["source"], said["label"], said["value"])
                  for target, said in signals.items() if target in exchanges)  # fmt: skip
    assert told == [("action:no-deletes", "deny", 0.75), ("action:soon", "dry-run", 0.5)]
    metrics = scene.metrics()
    for decision in ("deny", "dry-run", "unreadable_refused"):
        assert f'headrace_guard_total{{decision="{decision}",route="tools"}}' in metrics


def test_a_method_in_another_case_calls_what_it_names(tmp_path: Path) -> None:
    """Some frameworks take methods in any case; nothing of them may pass that a rule denies."""
    rules = {"rules": [{"name": "kept", "match": {"tools": "drop_order"}, "decision": "deny"}]}
    drop = ("drop_order", "DELETE", "/orders/{id}")
    setup = GuardSetup(tmp_path / "approvals.sqlite", rules, operations=(drop,))
    with Upstream(lambda _: plain(200, b"done")) as upstream:
        settings = {"routes": [{"name": "tools", "upstream": upstream.url, "kind": "tool"}]}
        with GatewayProcess(tmp_path, settings=settings, guard=setup) as gateway:
            place = urlsplit(gateway.url)
            assert place.hostname is not None
            headers = {"authorization": f"Bearer {gateway.key}"}
            for method in ("DELETE", "delete", "Delete"):
                client = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
                with contextlib.closing(client):
                    client.request(method, "/tools/orders/7", headers=headers)
                    # The plain listener takes no method that is not registered.
                    assert client.getresponse().status in (400, 403)
        assert upstream.seen == []


def test_an_approval_outlives_a_gateway_that_is_killed(tmp_path: Path) -> None:
    setup = GuardSetup(tmp_path / "approvals.sqlite", RULES)
    asked = call("pay", 1, amount=7)
    with Upstream(script) as upstream:
        settings = {"routes": [{"name": "tools", "upstream": upstream.url, "kind": "tool"}]}

        def post(url: str, key: str) -> Any:
            headers = {"authorization": f"Bearer {key}"}
            return httpx.post(
                url + "/tools/mcp", json=asked, headers=headers, timeout=30, trust_env=False
            ).json()

        def try_to_post(url: str, key: str) -> None:
            with contextlib.suppress(httpx.TransportError):
                post(url, key)

        with GatewayProcess(tmp_path, settings=settings, guard=setup) as gateway:
            key = gateway.key
            with in_background(lambda: try_to_post(gateway.url, key)):
                while not (waiting := setup.approvals().list()):
                    time.sleep(0.01)
                gateway.stop(signal.SIGKILL)
        setup.approvals().decide(waiting[0].approval_id, approve=True, who="ada")
        assert upstream.seen == []
        with GatewayProcess(tmp_path, settings=settings, guard=setup) as gateway:
            assert post(gateway.url, key)["result"]["content"][0]["text"] == "done"
        assert len(upstream.seen) == 1
        assert setup.approvals().get(waiting[0].approval_id).status == "used"
