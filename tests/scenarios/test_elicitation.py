"""Held calls over streamable HTTP: the user of the MCP client decides, where rule and client let them."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from mcp.types import ElicitRequestParams, ElicitResult, ErrorData

from proxy.guard.approvals import Approval
from proxy.guard.elicitation import Elicitations, McpSession
from proxy.guard.rules import RequestedCall
from tests.interop.clients.tools import calculator, serving
from tests.proxy.gateway_process import GatewayProcess
from tests.support.guard import GuardSetup
from tests.support.ports import free_port
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json, plain
from trajectory.exchange import Feedback

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

RULES: dict[str, Any] = {
    "rules": [
        {
            "name": "sums",
            "match": {"tools": ["add", "pay"], "arguments": [{"path": "$.a", "above": 100}]},
            "decision": "hold",
            "approver": "client",
            "wait_seconds": 600,
        },
        {"name": "reviewed", "match": {"tools": "review"}, "decision": "hold", "wait_seconds": 600},
    ]
}


@dataclass
class Person:
    """Who sits at a client, and what they were asked."""

    action: Any
    asked: list[str] = field(default_factory=list)

    async def __call__(self, context: Any, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        self.asked.append(params.message)
        if self.action == "broken":
            return ErrorData(code=-32603, message="no screen")
        return ElicitResult(action=self.action)


async def add(gateway: GatewayProcess, person: Person | None, *numbers: int) -> list[Any]:
    """Add 1 to numbers by the official client; return the results."""
    headers = {"Authorization": f"Bearer {gateway.key}"}
    async with (
        streamablehttp_client(f"{gateway.url}/tools/mcp", headers=headers) as (read, write, _),
        ClientSession(read, write, elicitation_callback=person) as session,
    ):
        await session.initialize()
        return [await session.call_tool("add", {"a": one, "b": 1}) for one in numbers]


def waiting(setup: GuardSetup) -> Approval:
    """Return the call that waits, once one does."""
    deadline = time.monotonic() + 60
    while not (found := setup.approvals().list()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found[0]


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> GuardSetup:
    return GuardSetup(tmp_path_factory.mktemp("approvals") / "approvals.sqlite", RULES)


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, setup: GuardSetup
) -> Iterator[GatewayProcess]:
    with serving(calculator().streamable_http_app()) as url:
        route = {"name": "tools", "upstream": url, "kind": "tool"}
        home = tmp_path_factory.mktemp("elicited")
        with GatewayProcess(home, settings={"routes": [route]}, guard=setup) as running:
            yield running


def test_the_official_client_s_user_accepts(gateway: GatewayProcess, setup: GuardSetup) -> None:
    person = Person("accept")
    small, large = asyncio.run(add(gateway, person, 1, 200))
    assert (small.content[0].text, large.content[0].text) == ("2", "201")
    (text,) = person.asked
    assert text.splitlines()[1:] == ["Tool: add", 'Arguments: {"a": 200, "b": 1}']
    row = setup.approvals().list("used")[0]
    assert (row.rule, row.decided_by) == ("sums", f"client:{gateway.key_id}")
    assert setup.audited()[-1][:3] == [row.decided_by, "approval.approved", row.approval_id]
    signals: list[dict[str, Any]] = []
    while not any(one["name"] == "approval" for one in signals):
        signals += [one.body for one in gateway.records(1) if isinstance(one, Feedback)]
    (said,) = [one for one in signals if one["name"] == "approval"]
    assert (said["source_kind"], said["source"], said["value"]) == (
        "human_explicit",
        "approvals:client",
        1.0,
    )


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_the_user_says_no(gateway: GatewayProcess, setup: GuardSetup, action: str) -> None:
    number = 300 + len(action)
    large, small = asyncio.run(add(gateway, Person(action), number, 2))
    assert large.isError
    assert "a person denied this call" in large.content[0].text
    assert small.content[0].text == "3"
    assert setup.approvals().list("denied")[0].decided_by == f"client:{gateway.key_id}"


@pytest.mark.parametrize("person", [None, Person("broken")])
def test_where_nobody_can_be_asked_an_operator_decides(
    gateway: GatewayProcess, setup: GuardSetup, person: Person | None
) -> None:
    def approve() -> None:
        setup.approvals().decide(waiting(setup).approval_id, approve=True, who="ada")

    with in_background(approve):
        (large,) = asyncio.run(add(gateway, person, 400))
    assert large.content[0].text == "401"


@contextlib.contextmanager
def in_background(work: Callable[[], Any]) -> Iterator[list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    yield found
    thread.join(120)
    assert not thread.is_alive()


@pytest.mark.slow
def test_any_worker_takes_the_answer(tmp_path: Path) -> None:
    setup = GuardSetup(tmp_path / "approvals.sqlite", RULES)
    with serving(calculator().streamable_http_app()) as url:
        settings = {
            "routes": [{"name": "tools", "upstream": url, "kind": "tool"}],
            "workers": 2,
            "port": free_port(),
            "forward_port": None,
            "admin_port": None,
        }
        with GatewayProcess(tmp_path / "home", settings=settings, guard=setup) as running:
            person = Person("accept")
            told = asyncio.run(add(running, person, *range(500, 510)))
    assert [one.content[0].text for one in told] == [str(one) for one in range(501, 511)]
    assert len(person.asked) == 10


# Clients that are not what they say.


def script(request: ReceivedRequest) -> Reply:
    """Answer as an MCP server does, and keep to the session that is named."""
    message = json.loads(request.body)
    if "id" not in message or "method" not in message:
        return plain(202, b"")
    result: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
    reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    if message["method"] != "initialize":
        return as_json(reply)
    name = message["params"]["clientInfo"]["name"]
    body = json.dumps({**reply, "result": {}}).encode()
    return plain(200, body, ("Content-Type", "application/json"), ("Mcp-Session-Id", name))


@dataclass
class Raw:
    """A gateway whose clients write what they like."""

    gateway: GatewayProcess
    upstream: Upstream
    setup: GuardSetup

    def key(self) -> str:
        """Return another client key of the same tenant."""
        made = self.gateway.registry.create(tenant_id="acme", app_id="other")
        return made.secret

    def post(self, message: Any, session: str, key: str | None = None) -> httpx.Response:
        headers = {
            "authorization": f"Bearer {key or self.gateway.key}",
            "accept": "application/json, text/event-stream",
            "mcp-session-id": session,
        }
        return httpx.post(
            f"{self.gateway.url}/tools/mcp",
            json=message,
            headers=headers,
            timeout=60,
            trust_env=False,
        )

    def begin(self, session: str, key: str | None = None, **capabilities: Any) -> None:
        """Begin a session of this name."""
        params = {"capabilities": capabilities, "clientInfo": {"name": session}}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        assert self.post(message, "", key).status_code == 200

    def call(self, session: str, amount: int, tool: str = "pay", key: str | None = None) -> Any:
        """Make a call; return the stream's messages but for progress."""
        params = {"name": tool, "arguments": {"a": amount}}
        message = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}
        answer = self.post(message, session, key)
        lines = [one[6:] for one in answer.text.splitlines() if one.startswith("data: ")]
        return [json.loads(one) for one in lines]

    def answer(self, question_id: str, session: str, key: str | None = None) -> httpx.Response:
        result = {"action": "accept"}
        message = {"jsonrpc": "2.0", "id": question_id, "result": result}
        return self.post(message, session, key)

    def question(self, row: Approval, session: str) -> str:
        """Return the id of the question about a call, as its own session alone reads it."""
        asking = Elicitations(self.setup.approvals())
        whose = McpSession("acme", row.key_id, "tools", session)
        asked = asking.question(row, RequestedCall("pay", {}), whose)
        assert asked is not None
        return str(asked["id"])

    def calls(self) -> int:
        """Return how many calls have reached the server."""
        return sum(b"tools/call" in one.body for one in self.upstream.seen)


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[Raw]:
    setup = GuardSetup(tmp_path / "approvals.sqlite", RULES)
    with Upstream(script) as upstream:
        route = {"name": "tools", "upstream": upstream.url, "kind": "tool"}
        with GatewayProcess(
            tmp_path / "home", settings={"routes": [route]}, guard=setup
        ) as running:
            yield Raw(running, upstream, setup)


def test_answers_that_are_not_the_session_s_own_decide_nothing(raw: Raw) -> None:
    raw.begin("mine", elicitation={})
    raw.begin("second", elicitation={})
    other = raw.key()
    with in_background(lambda: raw.call("mine", 500)) as found:
        row = waiting(raw.setup)
        question = raw.question(row, "mine")
        forged = f"headrace-approval-{row.approval_id}-{'0' * 40}"
        strangers = [
            raw.answer(forged, "mine"),
            raw.answer("headrace-approval-", "mine"),
            raw.answer(question, "second"),
            raw.answer(question, ""),
            raw.answer(question, "mine", other),
        ]
        batch = [{"jsonrpc": "2.0", "id": question, "result": {"action": "accept"}}]
        strangers.append(raw.post(batch, "mine"))
        assert [one.status_code for one in strangers] == [400] * 6
        assert raw.setup.approvals().get(row.approval_id).status == "pending"
        assert raw.calls() == 0
        assert raw.answer(question, "mine").status_code == 202
    asked, told = found[0]
    assert (asked["id"], asked["method"]) == (question, "elicitation/create")
    assert told["result"]["content"][0]["text"] == "done"
    # Nothing of what was answered has gone on.
    assert not any(b"headrace-approval" in one.body for one in raw.upstream.seen)
    # Said again it decides nothing: the next call like it is asked about anew.
    assert raw.answer(question, "mine").status_code == 202
    with in_background(lambda: raw.call("mine", 500)) as found:
        again = waiting(raw.setup)
        assert again.approval_id != row.approval_id
        raw.answer(question, "mine")
        assert raw.setup.approvals().get(again.approval_id).status == "pending"
        raw.answer(raw.question(again, "mine"), "mine")
    assert raw.calls() == 2


def test_a_session_that_cannot_ask_is_not_asked_and_gets_no_other_s_approval(raw: Raw) -> None:
    raw.begin("mine", elicitation={})
    raw.begin("mute")
    with in_background(lambda: raw.call("mute", 600)) as silent:
        mute = waiting(raw.setup)
        assert raw.answer(raw.question(mute, ""), "").status_code == 400
        with in_background(lambda: raw.call("mine", 600)):
            while len(raw.setup.approvals().list()) < 2:
                time.sleep(0.01)
            (mine,) = {*raw.setup.approvals().list()} - {mute}
            raw.answer(raw.question(mine, "mine"), "mine")
        assert raw.setup.approvals().get(mute.approval_id).status == "pending"
        raw.setup.approvals().decide(mute.approval_id, approve=False, who="ada")
    (told,) = silent[0]
    assert told["result"]["isError"]


def test_an_answer_that_comes_too_late_changes_nothing(raw: Raw) -> None:
    raw.begin("mine", elicitation={})
    with in_background(lambda: raw.call("mine", 700)) as found:
        row = waiting(raw.setup)
        raw.setup.approvals().decide(row.approval_id, approve=False, who="ada")
    asked, withdrawn, told = found[0]
    assert withdrawn["method"] == "notifications/cancelled"
    assert withdrawn["params"]["requestId"] == asked["id"]
    assert "a person denied this call" in told["result"]["content"][0]["text"]
    assert raw.answer(raw.question(row, "mine"), "mine").status_code == 202
    (row,) = raw.setup.approvals().list("all")
    assert (row.status, row.decided_by) == ("denied", "ada")
    assert raw.calls() == 0


def test_an_operator_s_rule_is_never_put_to_the_client(raw: Raw) -> None:
    raw.begin("mine", elicitation={})
    with in_background(lambda: raw.call("mine", 1, "review")) as found:
        row = waiting(raw.setup)
        # Not even with an id that would be right.
        assert raw.answer(raw.question(row, "mine"), "mine").status_code == 400
        assert raw.setup.approvals().get(row.approval_id).status == "pending"
        raw.setup.approvals().decide(row.approval_id, approve=True, who="ada")
    (told,) = found[0]
    assert told["result"]["content"][0]["text"] == "done"
