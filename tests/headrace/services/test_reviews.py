"""Answers, labels and corrections of a reviewer: through a real gateway and governance into the lake."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headrace.app.context import AppContext
from headrace.cli import run
from headrace.processes.supervisor import headrace_command
from headrace.services.review_answers import answer
from headrace.services.review_queues import queue_of
from headrace.services.reviews import correct_answer, give_feedback, rater_of
from proxy.clients.keys import KeyRegistry
from tests.train.lakes import Session, lake_of
from trajectory.child_process import free_port
from trajectory.files import replace_file

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home with one conversation, and its gateway."""
    lake_of(tmp_path / "lake", Session(1, question="How many lamps?", answer="Seven."))
    port = free_port()
    gateway = {"port": port, "forward_port": None, "admin_port": None}
    (tmp_path / "headrace.yaml").write_text(json.dumps({"gateway": gateway}))
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    process = subprocess.Popen(headrace_command(["gateway"]), stderr=subprocess.PIPE)
    try:
        until = time.monotonic() + 120
        while not _answers(port):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < until, "nothing answers"
            time.sleep(0.1)
        yield tmp_path
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def _answers(port: int) -> bool:
    try:
        return bool(httpx.get(f"http://127.0.0.1:{port}").status_code)
    except httpx.TransportError:
        return False


def test_what_a_reviewer_says_is_in_the_lake_under_the_shipped_policy(home: Path) -> None:
    running = AppContext(home, debug=False)
    rater = rater_of(running, "rena")
    steps = running.lake.query("SELECT trajectory_id, step_id, tenant_id FROM steps").to_pylist()
    step = steps[0]
    label = {
        "trajectory_id": step["trajectory_id"],
        "name": "success",
        "value": 0.0,
        "source_kind": "human_explicit",
        "source": rater,
    }
    give_feedback(running, step["tenant_id"], [label])
    correct_answer(running, "rena", step["step_id"], "Eight.")
    assert run(["govern", "--once"]) == 0
    found = running.lake.query(
        "SELECT name, value, rationale FROM rewards_latest WHERE source = $rater ORDER BY name",
        {"rater": rater},
    ).to_pylist()
    assert [(row["name"], row["value"], row["rationale"]) for row in found] == [
        ("corrected_answer", None, "Eight."), ("success", 0.0, None),
    ]  # fmt: skip


def test_a_key_that_grants_nothing_is_replaced(home: Path) -> None:
    running = AppContext(home, debug=False)
    registry = KeyRegistry.load(running.home.create().client_keys)
    old = registry.create(tenant_id="acme", app_id="console").secret
    path = running.home.secrets / "console-keys.json"
    replace_file(path, json.dumps({"acme": old}).encode())
    item = {"trajectory_id": "t00001", "name": "success", "value": 1.0}
    give_feedback(running, "acme", [item])
    assert json.loads(path.read_bytes())["acme"] != old
    give_feedback(running, "acme", [item])
    kept = KeyRegistry.load(running.home.client_keys).authenticate(
        json.loads(path.read_bytes())["acme"]
    )
    assert kept is not None
    assert "share" not in kept.purposes
    assert "train_sft" in kept.purposes


@pytest.mark.parametrize("content", ["", "{", "[]", '{"acme": 5}', '{"acme": null}'])
def test_damaged_keys_of_the_console_are_made_anew(home: Path, content: str) -> None:
    running = AppContext(home, debug=False)
    path = running.home.create().secrets / "console-keys.json"
    replace_file(path, content.encode())
    give_feedback(running, "acme", [{"trajectory_id": "t00001", "name": "success", "value": 1.0}])
    made = json.loads(path.read_bytes())["acme"]
    assert KeyRegistry.load(running.home.client_keys).authenticate(made) is not None


QUEUE = """\
apiVersion: headrace/v1
kind: ReviewQueue
metadata: {name: lamps}
spec:
  questions:
    - {name: polite, ask: 'Was it polite?', type: yes_no}
    - {name: fault, ask: 'What went wrong?', type: choice, choices: [nothing, tool, facts]}
    - {name: effort, ask: 'How hard was it?', type: scale, low: 1, high: 5}
    - {name: remark, ask: 'Anything else?', type: text, required: false}
"""


def test_answers_to_a_queue_are_in_the_lake_by_their_types(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "lamps.yaml").write_text(QUEUE)
    settings = json.loads((home / "headrace.yaml").read_text())
    settings["console"] = {"queues": [str(home / "lamps.yaml")]}
    (home / "headrace.yaml").write_text(json.dumps(settings))
    running = AppContext(home, debug=False)
    (about,) = running.lake.query("SELECT DISTINCT tenant_id, trajectory_id FROM steps").to_pylist()
    command = ["review", "answer", about["trajectory_id"], "--queue", "lamps"]
    assert run([*command, "polite=yes", "fault=tool", "effort=3"]) == 0
    assert run([*command, "polite=yes", "fault=rain", "effort=3"]) == 2
    lamps = queue_of(running, "lamps")
    given = {"polite": "yes", "fault": "facts", "effort": "5", "remark": "It took long."}
    for polite in ("yes", "no", "yes"):  # who comes back to a first answer is heard
        answer(running, "rena", lamps, about, {**given, "polite": polite}, "because")
    assert run(["govern", "--once"]) == 0
    found = running.lake.query(
        "SELECT name, value, label, rationale FROM rewards_latest WHERE source = $rater "
        "ORDER BY name",
        {"rater": rater_of(running, "rena")},
    ).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("effort", 5.0, None, None), ("fault", None, "facts", None),
        ("polite", 1.0, None, "because"), ("remark", None, None, "It took long."),
    ]  # fmt: skip
    capsys.readouterr()
    assert run(["review", "agreement", "--queue", "lamps", "--json"]) == 0
    kappas = {one["question"]: one["kappa"] for one in json.loads(capsys.readouterr().out)}
    assert kappas == {"polite": None, "fault": 0.0, "effort": 0.0}
    assert run(["review", "next", "--queue", "lamps", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"trajectory": None}
    assert run(["review", "next", "--json"]) == 0
    left = json.loads(capsys.readouterr().out)["trajectory"]
    assert left["trajectory_id"] == about["trajectory_id"], "another queue asks something else"
    assert run(["review", "queues", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["queue"], one["type"]) for one in listed] == [
        ("success", "yes_no"), ("lamps", "yes_no"), ("lamps", "choice"), ("lamps", "scale"),
        ("lamps", "text"),
    ]  # fmt: skip
