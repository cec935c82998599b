"""Labels and corrections of a reviewer: through a real gateway and governance into the lake."""

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
    give_feedback(running, step["tenant_id"], label)
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
    give_feedback(running, "acme", item)
    assert json.loads(path.read_bytes())["acme"] != old
    give_feedback(running, "acme", item)
    kept = KeyRegistry.load(running.home.client_keys).authenticate(
        json.loads(path.read_bytes())["acme"]
    )
    assert kept is not None
    assert "share" not in kept.purposes
    assert "train_sft" in kept.purposes
