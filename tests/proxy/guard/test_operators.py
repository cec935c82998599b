"""Approvals over HTTP: an operator's credential opens them, and nothing of a client's does."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.guard.approvals import Approval, Approvals
from proxy.guard.operators import OperatorApi, OperatorTerms
from proxy.guard.rules import ActionRule, RequestedCall, Ruling
from tests.proxy.gateway_process import GatewayProcess
from tests.support.guard import CREDENTIAL, GuardSetup
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json
from trajectory.errors import RetryableError

RULES: dict[str, Any] = {
    "rules": [
        {"name": "payments", "match": {"tools": "pay"}, "decision": "hold", "wait_seconds": 120}
    ]
}


def script(_: ReceivedRequest) -> Reply:
    result = {"content": [{"type": "text", "text": "done"}]}
    return as_json({"jsonrpc": "2.0", "id": 1, "result": result})


class Scene:
    """A gateway, its client and its operator."""

    def __init__(self, gateway: GatewayProcess, setup: GuardSetup) -> None:
        self.gateway, self.setup = gateway, setup

    def pay(self, amount: int) -> tuple[threading.Thread, list[Any]]:
        params = {"name": "pay", "arguments": {"amount": amount}}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        told: list[Any] = []

        def work() -> None:
            headers = {"authorization": f"Bearer {self.gateway.key}"}
            url = f"{self.gateway.url}/tools/mcp"
            answer = httpx.post(url, json=asked, headers=headers, timeout=120, trust_env=False)
            told.append(answer.json())

        thread = threading.Thread(target=work)
        thread.start()
        return thread, told

    def pending(self) -> Approval:
        while not (waiting := self.setup.approvals().list()):
            time.sleep(0.01)
        return waiting[0]

    def ask(
        self, method: str, path: str, *, credential: str = CREDENTIAL, **more: Any
    ) -> httpx.Response:
        headers = {"authorization": f"Bearer {credential}"} if credential else {}
        url = self.gateway.admin + path
        return httpx.request(method, url, headers=headers, timeout=60, trust_env=False, **more)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    home = tmp_path_factory.mktemp("operators")
    setup = GuardSetup(home / "approvals.sqlite", RULES)
    with Upstream(script) as upstream:
        route = {"name": "tools", "upstream": upstream.url, "kind": "tool"}
        with GatewayProcess(home, settings={"routes": [route]}, guard=setup) as gateway:
            yield Scene(gateway, setup)


@pytest.mark.parametrize("verb", ["approve", "deny"])
def test_an_operator_lists_shows_and_decides(scene: Scene, verb: str) -> None:
    thread, told = scene.pay(5 if verb == "approve" else 6)
    name = scene.pending().approval_id
    (row,) = scene.ask("GET", "/approvals").json()["approvals"]
    assert (row["approval_id"], row["rule"], row["tenant"]) == (name, "payments", "acme")
    assert "arguments" not in row
    assert scene.ask("GET", "/approvals?tenant=other").json() == {"approvals": []}
    shown = scene.ask("GET", f"/approvals/{name}").json()
    assert (shown["tool"], shown["arguments"]) == ("pay", {"amount": 5 if verb == "approve" else 6})
    said = scene.ask("POST", f"/approvals/{name}/{verb}", json={"reason": "Known.", "who": "ada"})
    assert said.json() == {
        "approval": name,
        "status": "approved" if verb == "approve" else "denied",
    }
    thread.join(60)
    text = told[0]["result"]["content"][0]["text"]
    assert (text == "done") if verb == "approve" else ("denied this call: Known." in text)
    again = scene.ask("POST", f"/approvals/{name}/{verb}")
    assert again.status_code == 409
    entries = [entry[:3] for entry in scene.setup.audited() if entry[2] == name]
    assert entries == [
        ["operator", "approval.read", name],
        ["operator:ada", f"approval.{said.json()['status']}", name],
    ]
    assert scene.setup.approvals().get(name).decided_by == "operator:ada"


def test_nobody_else_gets_in(scene: Scene) -> None:
    thread, told = scene.pay(7)
    name = scene.pending().approval_id
    for credential in ("", scene.gateway.key, "hro_", f"{CREDENTIAL}x", CREDENTIAL[:-1], "\u00e9"):
        for method, path in (
            ("GET", "/approvals"),
            ("GET", f"/approvals/{name}"),
            ("POST", f"/approvals/{name}/approve"),
        ):
            value = f"Bearer {credential}".strip().encode("latin-1")
            url = scene.gateway.admin + path
            answer = httpx.request(
                method, url, headers=[(b"authorization", value)], trust_env=False
            )
            assert answer.status_code == 401
            assert name not in answer.text
    # The clients' port knows no such place, with whatever credential.
    for credential in (scene.gateway.key, CREDENTIAL):
        asked = {"authorization": f"Bearer {credential}"}
        url = f"{scene.gateway.url}/approvals/{name}/approve"
        assert httpx.post(url, headers=asked, trust_env=False).status_code in (401, 404)
    assert scene.pending().approval_id == name
    scene.ask("POST", f"/approvals/{name}/deny")
    thread.join(60)
    assert told


@pytest.mark.parametrize(
    ("method", "path", "more", "status"),
    [
        ("GET", "/approvals/0123", {}, 404),
        ("POST", "/approvals/0123/approve", {}, 404),
        ("GET", "/approvals/../health", {}, 404),
        ("GET", "/approvals?status=any", {}, 400),
        ("DELETE", "/approvals", {}, 405),
        ("GET", "/approvals/0123/approve", {}, 405),
        ("POST", "/approvals/0123/approve", {"content": b"[1]"}, 400),
        ("POST", "/approvals/0123/approve", {"content": b"[" * 9000}, 400),
        ("POST", "/approvals/0123/approve", {"json": {"approve": True}}, 400),
        ("POST", "/approvals/0123/approve", {"json": {"who": "a\nb"}}, 400),
        ("POST", "/approvals/0123/approve", {"json": {"reason": "x" * 1001}}, 400),
        ("POST", "/approvals/0123/approve", {"content": b"x" * 70_000}, 413),
    ],
)
def test_what_is_not_asked_well_changes_nothing(
    scene: Scene, method: str, path: str, more: dict[str, Any], status: int
) -> None:
    if ".." in path or status == 413:  # as no client would send it
        host, port = scene.gateway.admin.removeprefix("http://").split(":")
        length = len(more.get("content", b""))
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {CREDENTIAL}\r\n"
        )
        with socket.create_connection((host, int(port))) as raw:
            raw.sendall(f"{head}content-length: {length}\r\n\r\n".encode())
            assert int(raw.makefile("rb").readline().split()[1]) == status
        return
    assert scene.ask(method, path, **more).status_code == status


def test_what_cannot_be_audited_is_not_decided_and_can_be_tried_again(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path / "approvals.sqlite", b"a" * 32)
    call = RequestedCall("pay", {"amount": 5}, tenant="acme")
    rule = ActionRule("payments", Ruling.HOLD)
    name = approvals.ask(call, rule, key_id="k1", route="tools", step_id="01").approval_id

    def full_disk(*_: object) -> None:
        raise RetryableError("the audit log could not be written; free some space")

    api = OperatorApi(approvals, OperatorTerms(CREDENTIAL, full_disk))
    for verb, method in ((f"/{name}/approve", "POST"), (f"/{name}", "GET")):
        answer = api.answer(method, f"/approvals{verb}", f"Bearer {CREDENTIAL}", b"")
        assert answer.status == 503
        assert b"free some space" in answer.body
        assert b"amount" not in answer.body
    assert approvals.get(name).status == "pending"
