"""Review: the queue goes on, a verdict goes to the gateway as feedback, and raters are compared."""

import http.server
import json
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.app.context import AppContext
from headrace.console.page import Console
from headrace.console.pages.review import agreement, cohens_kappa
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
    sent = {"trajectory": first, "verdict": "reject", "comment": "wrong lamp"}
    second = client.post("/review.json", data=sent, headers=SAME).json()["trajectory"]
    assert second["trajectory_id"] == "t00003"
    sent = {"trajectory": "t00003", "verdict": "skip"}
    third = client.post("/review.json", data=sent, headers=SAME).json()["trajectory"]
    assert third["trajectory_id"] == "t00002"
    ((key, item),) = gateway
    running: AppContext = console.running
    assert item == {
        "trajectory_id": "t00004", "name": "success", "value": 0.0, "rationale": "wrong lamp",
        "source_kind": "human_explicit", "source": rater_of(running, "rena"),
    }  # fmt: skip
    assert "rena" not in item["source"]
    assert key.startswith("Bearer ")
    noted = [(one.actor, one.action, one.subject) for one in running.audit.entries()]
    assert {("rena", "review.judged", "t00004"), ("rena", "content.read", "t00003")} <= set(noted)
    other = {"trajectory": "t00005", "verdict": "accept"}
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
    assert [item for _, item in gateway] == [
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
        sent = {"trajectory": "t00001", "verdict": "accept"}
        answer = client.post("/review", data=sent, headers=SAME)
    assert (answer.status_code, "no gateway answers" in answer.text) == (409, True)


@pytest.mark.parametrize(
    ("one", "other", "kappa"),
    [
        ([1, 1, 0, 0, 1], [1, 0, 0, 0, 1], 0.6153846153846154),
        ([1, 0, 1, 0], [0, 1, 0, 1], -1.0),
        ([1, 1, 1], [1, 0, 1], 0.0),
    ],
)
def test_kappa_is_agreement_beyond_chance(one: list[int], other: list[int], kappa: float) -> None:
    assert cohens_kappa([*zip(one, other, strict=True)]) == pytest.approx(kappa)


@pytest.mark.parametrize(
    ("seed", "kappa"),
    [
        (0, 0.42992874109263657),
        (1, 0.3467336683417085),
        (2, 0.201995012468828),
        (3, 0.10224438902743149),
    ],
)
def test_kappa_is_what_scikit_learn_says(seed: int, kappa: float) -> None:
    """``cohen_kappa_score`` of scikit-learn 1.9.1, of the same forty verdicts."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    one = [draw.randint(0, 1) for _ in range(40)]
    other = [said if draw.random() < 0.7 else 1 - said for said in one]
    assert cohens_kappa([*zip(one, other, strict=True)]) == pytest.approx(kappa, rel=1e-12)


def test_raters_are_compared_where_both_judged() -> None:
    rows = [
        {"trajectory_id": "a", "source": "rater-1", "value": 1.0},
        {"trajectory_id": "a", "source": "rater-2", "value": 1.0},
        {"trajectory_id": "b", "source": "rater-1", "value": 0.0},
        {"trajectory_id": "b", "source": "rater-2", "value": 0.0},
        {"trajectory_id": "c", "source": "rater-1", "value": 0.0},
    ]
    assert agreement(rows) == [{"raters": ["rater-1", "rater-2"], "conversations": 2, "kappa": 1.0}]
    assert cohens_kappa([(1, 1), (1, 1)]) is None
