"""``headrace up``: the gateway answers whatever state the lake is in."""

import json
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import run
from headrace.processes.supervisor import headrace_command
from tests.support.ports import free_port
from tests.train.lakes import Session, lake_of

pytestmark = pytest.mark.timeout(300)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def break_log(table: Path) -> None:
    """Tear the last entry of a table's log, as a full disk may."""
    log = max((table / "_delta_log").glob("*.json"))
    log.write_bytes(log.read_bytes()[:20])


@pytest.mark.parametrize("with_sql", [False, True])
def test_the_gateway_starts_when_a_killed_run_left_a_folder_and_the_lake_cannot_be_read(
    tmp_path: Path, with_sql: bool
) -> None:
    lake_of(tmp_path / "lake", Session(1))
    break_log(tmp_path / "lake" / "runs")
    words = tmp_path / "runs" / "killed" / "evaluation" / "base.episodes"
    words.parent.mkdir(parents=True)
    words.write_text("Ida Novak")
    port, forward, admin, sql, console = (free_port() for _ in range(5))
    settings = {
        "gateway": {"port": port, "forward_port": forward, "admin_port": admin},
        "sql_server": {"enabled": with_sql, "port": sql},
        "console": {"port": console},
    }
    (tmp_path / "headrace.yaml").write_text(json.dumps(settings))
    up = subprocess.Popen(
        headrace_command(["--home", str(tmp_path), "up"]), stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 120
        while not answers(port) and up.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        assert answers(port), up.communicate(timeout=10)[1] if up.poll() is not None else "silent"
        assert not words.exists()
    finally:
        up.send_signal(signal.SIGTERM)
        up.communicate(timeout=120)


@pytest.mark.slow
def test_the_console_comes_up_with_the_gateway_and_a_taken_port_leaves_it_out(
    tmp_path: Path,
) -> None:
    port, forward, admin, console = (free_port() for _ in range(4))
    settings = {
        "gateway": {"port": port, "forward_port": forward, "admin_port": admin},
        "console": {"port": console},
    }
    (tmp_path / "headrace.yaml").write_text(json.dumps(settings))
    command = headrace_command(["--home", str(tmp_path), "up"])

    def said_until(answering: int) -> str:
        up = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            deadline = time.monotonic() + 120
            while not answers(answering) and up.poll() is None and time.monotonic() < deadline:
                time.sleep(0.2)
            assert answers(answering), "nothing answers"
        finally:
            up.send_signal(signal.SIGTERM)
            said = up.communicate(timeout=120)[1]
        return said

    said_until(console)
    with socket.create_server(("127.0.0.1", console)):
        said = said_until(port)
    assert f"127.0.0.1:{console} (console) is taken by process" in said
    assert "console.port" in said


@pytest.mark.slow
def test_of_several_that_start_at_once_one_goes_on(tmp_path: Path) -> None:
    port, forward, admin = (free_port() for _ in range(3))
    settings = {
        "gateway": {"port": port, "forward_port": forward, "admin_port": admin},
        "console": {"enabled": False},
    }
    (tmp_path / "headrace.yaml").write_text(json.dumps(settings))
    command = headrace_command(["--home", str(tmp_path), "up"])
    ups = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            running = [up for up in ups if up.poll() is None]
            if len(running) == 1 and answers(port):
                break
            time.sleep(0.2)
        assert len(running) == 1
        assert [up.returncode for up in ups if up is not running[0]] == [2, 2]
        log = (tmp_path / "logs" / "gateway.log").read_text()
        assert "cannot listen" not in log
    finally:
        for up in ups:
            up.send_signal(signal.SIGTERM)
            up.communicate(timeout=120)


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"console": {"port": 41_004}}, "gateway.admin_port (worker 1) and console.port are both"),
        (
            {"console": {"port": 41_010}, "sql_server": {"enabled": True, "http_port": 41_010}},
            "sql_server.http_port and console.port are both",
        ),
    ],
)
def test_two_programs_on_one_port_are_refused_before_anything_starts(
    others: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ports = {"port": 41_001, "forward_port": 41_002, "admin_port": 41_003}  # nobody comes to listen
    settings = {"gateway": {**ports, "workers": 2}, **others}
    (tmp_path / "headrace.yaml").write_text(json.dumps(settings))
    assert run(["--home", str(tmp_path), "up"]) == 2
    assert said in capsys.readouterr().err
    assert not list((tmp_path / "logs").iterdir())
