"""Review: the queue goes on, a verdict goes to the gateway as feedback, and raters are compared."""

import http.server
import json
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.app.context import AppContext
from headrace.console.page import Console
from headrace.services.reviews import rater_of
from tests.headrace.console.conftest import SAME, client_of


@pytest.fixture
def gateway(console: Console, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What a gateway takes as feedback, each item with the key that sent it."""
    taken: list[Any] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            items = json.loads(body)
            taken.extend((self.headers["authorization"], one) for one in items)
            self.send_response(202 if items else 400)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        settings = console.running.settings
        there = settings.gateway.model_copy(update={"port": server.server_port})
        changed = settings.model_copy(update={"gateway": there})
        monkeypatch.setitem(vars(console.running), "settings", changed)
        yield taken
        server.shutdown()
        thread.join()


def test_a_verdict_is_feedback_of_the_rater_and_the_queue_goes_on(
    console: Console, gateway: list[Any]
) -> None:
    client = client_of(console, ("reviewer", "acme"), name="rena")
    first = client.get("/review.json").json()["trajectory"]["trajectory_id"]
    assert first == "t00004", "the latest first"
    sent = {"trajectory": first, "answer.success": "no", "comment": "wrong lamp"}
    second = client.post("/review.json", data=sent, headers=SAME).json()["trajectory"]
    assert second["trajectory_id"] == "t00003"
    sent = {"trajectory": "t00003", "verdict": "skip"}
    third = client.post("/review.json", data=sent, headers=SAME).json()["trajectory"]
    assert third["trajectory_id"] == "t00002"
    ((key, item),) = gateway
    running: AppContext = console.running
    datetime.fromisoformat(item.pop("observed_at"))
    assert item == {
        "trajectory_id": "t00004", "name": "success", "value": 0.0, "rationale": "wrong lamp",
        "source_kind": "human_explicit", "source": rater_of(running, "rena"),
    }  # fmt: skip
    assert "rena" not in item["source"]
    assert key.startswith("Bearer ")
    noted = [(one.actor, one.action, one.subject) for one in running.audit.entries()]
    assert {("rena", "review.judged", "t00004"), ("rena", "content.read", "t00003")} <= set(noted)
    other = {"trajectory": "t00005", "answer.success": "yes"}
    assert client.post("/review", data=other, headers=SAME).status_code == 404, "another tenant's"


def test_a_correction_is_feedback_about_the_answers_step(
    console: Console, gateway: list[Any]
) -> None:
    client = client_of(console, ("reviewer", "acme"), name="rita")
    data = client.get("/review.json").json()
    assert data["last_answer"]["step_id"] == "t00004-1"
    sent = {
        "trajectory": "t00004",
        "verdict": "correct",
        "step": "t00004-1",
        "correction": "Eight.\r\n",
    }
    client.post("/review.json", data=sent, headers=SAME)
    sent = {"step": "t00002-1", "correction": "They cost 4 crowns."}
    page = client.post("/trajectories/t00002", data=sent, headers=SAME).text
    assert "The correction was taken" in page
    rater = rater_of(console.running, "rita")
    said = {"name": "corrected_answer", "source_kind": "human_explicit", "source": rater}
    items = [
        {name: said for name, said in item.items() if name != "observed_at"} for _, item in gateway
    ]
    assert items == [
        {"step_id": "t00004-1", "rationale": "Eight.", **said},
        {"trajectory_id": "t00004", "value": 0.0, **said, "name": "success"},
        {"step_id": "t00002-1", "rationale": "They cost 4 crowns.", **said},
    ]
    noted = [(one.actor, one.action, one.subject) for one in console.running.audit.entries()]
    assert ("rita", "review.corrected", "t00002-1") in noted
    for step, text, status in (
        ("t00005-1", "x", 404), ("t00001-1", "x", 404), ("t00002-1", " ", 400),
    ):  # fmt: skip
        sent = {"step": step, "correction": text}
        answer = client.post("/trajectories/t00002", data=sent, headers=SAME)
        assert answer.status_code == status, "another tenant's, another conversation's, or nothing"
    assert len(gateway) == 3


def test_a_verdict_that_no_gateway_takes_is_told(console: Console) -> None:
    client = client_of(console, ("reviewer", "acme"), name="rob")
    settings = console.running.settings
    closed = settings.model_copy(
        update={"gateway": settings.gateway.model_copy(update={"port": 9})}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(vars(console.running), "settings", closed)
        sent = {"trajectory": "t00001", "answer.success": "yes"}
        answer = client.post("/review", data=sent, headers=SAME)
    assert (answer.status_code, "no gateway answers" in answer.text) == (409, True)


QUEUE = """\
apiVersion: headrace/v1
kind: ReviewQueue
metadata: {name: refunds, description: What agents of the shop did about refunds.}
spec:
  match: {tenant: acme}
  questions:
    - {name: polite, ask: 'Was it polite?', type: yes_no}
    - {name: fault, ask: 'What went wrong?', type: choice, choices: [nothing, tool, facts]}
    - {name: effort, ask: 'How hard was it?', type: scale, low: 1, high: 4}
    - {name: remark, ask: 'Anything else?', type: text, required: false}
"""
ANSWERS = {"answer.polite": "yes", "answer.fault": "tool", "answer.effort": "3"}


@pytest.fixture
def queues(
    console: Console, gateway: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings name a queue, and one of another tenant."""
    (tmp_path / "refunds.yaml").write_text(QUEUE)
    (tmp_path / "other.yaml").write_text(
        QUEUE.replace("name: refunds", "name: secret").replace("tenant: acme", "tenant: globex")
    )
    settings = console.running.settings
    files = (tmp_path / "refunds.yaml", tmp_path / "other.yaml")
    asks = settings.console.model_copy(update={"queues": files})
    monkeypatch.setitem(
        vars(console.running), "settings", settings.model_copy(update={"console": asks})
    )


@pytest.mark.usefixtures("queues")
def test_a_queue_asks_its_own_questions_and_keeps_each_answer_by_its_type(
    console: Console, gateway: list[Any]
) -> None:
    client = client_of(console, ("reviewer", "acme"), name="rosa")
    data = client.get("/review.json?queue=refunds").json()
    assert [one["name"] for one in data["queues"]] == ["success", "refunds"], "not another tenant's"
    assert [(one["name"], one["type"], one["options"]) for one in data["questions"]] == [
        ("polite", "yes_no", ["yes", "no"]), ("fault", "choice", ["nothing", "tool", "facts"]),
        ("effort", "scale", ["1", "2", "3", "4"]), ("remark", "text", []),
    ]  # fmt: skip
    page = client.get("/review?queue=refunds").text
    assert page.count('type="radio"') == 9
    assert page.count("required") >= 9
    assert 'accesskey="9"' in page
    first = data["trajectory"]["trajectory_id"]
    sent = {"trajectory": first, **ANSWERS, "answer.remark": "was slow ", "comment": "why"}
    gone_on = client.post("/review.json?queue=refunds", data=sent, headers=SAME).json()
    assert gone_on["trajectory"]["trajectory_id"] != first
    common = {
        "trajectory_id": first, "source_kind": "human_explicit",
        "source": rater_of(console.running, "rosa"),
    }  # fmt: skip
    for _, item in gateway:
        datetime.fromisoformat(item.pop("observed_at"))
    assert [item for _, item in gateway] == [
        {**common, "name": "polite", "value": 1.0, "rationale": "why"},
        {**common, "name": "fault", "label": "tool"},
        {**common, "name": "effort", "value": 3.0},
        {**common, "name": "remark", "rationale": "was slow"},
    ]
    (noted,) = [
        one
        for one in console.running.audit.entries()
        if one.actor == "rosa" and one.action == "review.judged"
    ]
    said = json.loads(noted.detail)
    assert (said["queue"], said["questions"]) == (
        "refunds", ["polite", "fault", "effort", "remark"],
    )  # fmt: skip


@pytest.mark.usefixtures("queues")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"answer.polite": ""}, "still to be answered: polite"),
        ({"answer.fault": "rain"}, "say one of nothing, tool, facts"),
        ({"answer.effort": "5"}, "a whole number from 1 to 4"),
        ({"answer.polite": "maybe"}, "say yes or no"),
        ({"answer.other": "x"}, "does not ask other"),
        ({"answer.remark": "x" * 2001}, "at most 2000 characters"),
        ({"verdict": "accept"}, "answered, corrected or skipped"),
    ],
)
def test_an_answer_that_is_none_is_told_and_nothing_is_kept(
    console: Console, gateway: list[Any], change: dict[str, str], said: str
) -> None:
    client = client_of(console, ("reviewer", "acme"), name="ruth")
    sent = {"trajectory": "t00001", **ANSWERS, **change}
    answer = client.post("/review.json?queue=refunds", data=sent, headers=SAME)
    assert (answer.status_code, said in answer.json()["error"]["message"]) == (400, True)
    assert gateway == []


@pytest.mark.usefixtures("queues")
def test_a_correction_goes_with_the_answers_of_its_queue(
    console: Console, gateway: list[Any]
) -> None:
    client = client_of(console, ("reviewer", "acme"), name="rex")
    sent = {"trajectory": "t00001", "verdict": "correct", "step": "t00001-1", "correction": "Nine."}
    place = "/review?queue=refunds"
    assert client.post(place, data=sent, headers=SAME).status_code == 400, "the answers are missing"
    assert gateway == []
    assert client.post(place, data={**sent, **ANSWERS}, headers=SAME).status_code == 200
    assert [item["name"] for _, item in gateway] == [
        "corrected_answer",
        "polite",
        "fault",
        "effort",
    ]


@pytest.mark.usefixtures("queues")
def test_a_tenant_sees_no_questions_about_another(console: Console) -> None:
    client = client_of(console, ("reviewer", "acme"), name="rolf")
    assert client.get("/review.json?queue=secret").status_code == 404
    everybody = client_of(console, ("admin", "*"), name="anna")
    data = everybody.get("/review.json?queue=secret").json()
    assert data["trajectory"]["tenant_id"] == "globex"
    assert client.get("/review.json?queue=nosuch").status_code == 400


@pytest.mark.usefixtures("queues")
def test_a_focus_shows_the_conversation_and_its_questions_alone(console: Console) -> None:
    client = client_of(console, ("reviewer", "acme"), name="rudi")
    whole, focus = client.get("/review").text, client.get("/review?focus=1").text
    assert ("<header>" in whole, "<header>" in focus) == (True, False)
    assert "autofocus" in focus
    assert 'href="/review"' in focus
