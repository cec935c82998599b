"""``headrace console`` as a process: it listens, its link signs in, and it ends when it is told to."""

import json
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from headrace.processes.supervisor import headrace_command
from tests.support.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def headrace(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = headrace_command(["--home", str(home), *arguments])
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_link_signs_in_to_the_console_that_runs(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "headrace.yaml").write_text(json.dumps({"console": {"port": port}}))
    log = tmp_path / "console.log"
    with log.open("wb") as file:
        console = subprocess.Popen(
            headrace_command(["--home", str(tmp_path), "console"]), stderr=file
        )
    try:
        deadline = time.monotonic() + 120
        while b"sign in:" not in log.read_bytes() and time.monotonic() < deadline:
            assert console.poll() is None, log.read_text()
            time.sleep(0.1)
        said = log.read_text()
        assert f"http://127.0.0.1:{port}" in said
        assert "token" not in said, "a token is for a person's eyes, in no log"
        link = httpx.URL(headrace(tmp_path, "console", "--link").stdout.strip())
        assert (link.host, link.port, link.path) == ("127.0.0.1", port, "/sign-in")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as browser:
            assert browser.get("/home").headers["location"].startswith("/sign-in")
            signed = browser.post(
                "/sign-in",
                data={"token": link.params["token"]},
                headers={"origin": f"http://127.0.0.1:{port}"},
            )
            assert signed.status_code == 303
            # This client has no cookies for HTTPS where there is none; browsers do on this machine.
            session = signed.headers["set-cookie"].partition(";")[0]
            home = browser.get("/home.json", headers={"cookie": session}).json()
            assert home["machine"]["gateway"]
    finally:
        console.send_signal(signal.SIGTERM)
        assert console.wait(120) == 0


def test_a_console_beyond_this_machine_wants_a_proxy(tmp_path: Path) -> None:
    (tmp_path / "headrace.yaml").write_text(json.dumps({"console": {"host": "192.0.2.1"}}))
    refused = headrace(tmp_path, "console")
    assert refused.returncode == 2
    assert "console.url, and console.oidc or console.proxies" in refused.stderr
