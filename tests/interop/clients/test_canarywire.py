"""PyPI's canarywire attacks pseudonymisation on the wire: its fake upstream must never see a value.

It plants values in plain messages, tool calls and conversations of several turns, cuts the surrogates in
streams at every character, and asks again while a detector is broken. That last one runs only what
breaks from outside; our detectors run within the gateway, so here a file breaks them.
"""

import json
import shlex
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
import yaml

from tests.proxy.gateway_process import GatewayProcess
from tests.support.inline import BreakableSetup, inline_setup

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]
UPSTREAM = Path(__file__).with_name("canarywire_upstream.py")
_HOP = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding"}


@pytest.fixture(scope="module")
def python() -> str:
    """Return the Python of canarywire's environment."""
    command = [ROOT / "scripts" / "test-environment", "canarywire"]
    made = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return str(ROOT / made.stdout.strip())


@contextmanager
def keyed(gateway: GatewayProcess) -> Iterator[str]:
    """Yield where requests get the client's key, which canarywire cannot send, and go on to the gateway."""

    class Relay(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {n: v for n, v in self.headers.items() if n.lower() not in _HOP}
            headers["x-headrace-key"] = gateway.key
            url = f"{gateway.url}/model{self.path}"
            with httpx.stream("POST", url, content=body, headers=headers, timeout=300) as answer:
                self.send_response(answer.status_code)
                for name, value in answer.headers.items():
                    if name.lower() not in _HOP:
                        self.send_header(name, value)
                self.end_headers()
                for piece in answer.iter_raw():
                    self.wfile.write(piece)
                    self.wfile.flush()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Relay)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@contextmanager
def capture(python: str, folder: Path) -> Iterator[str]:
    command = [python, str(UPSTREAM), str(folder / "capture.jsonl")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.terminate()


@pytest.mark.parametrize("surrogates", ["token", "realistic"])
def test_canarywire_finds_nothing(tmp_path: Path, python: str, surrogates: str) -> None:
    broken = tmp_path / "broken"
    setup = inline_setup(
        tmp_path / "policy",
        routes=["model"],
        restore={"to": ["client", "tool:*"]},
        budget_ms=120_000,
        surrogates=surrogates,
    )
    with capture(python, tmp_path) as upstream:
        settings = {"routes": [{"name": "model", "upstream": upstream}]}
        inline = BreakableSetup(setup, broken)
        with (
            GatewayProcess(tmp_path / "gateway", settings, inline=inline) as gateway,
            keyed(gateway) as target,
        ):
            flag = shlex.quote(str(broken))
            routes = [
                {"protocol": "openai-chat", "path": "/v1/chat/completions"},
                {"protocol": "anthropic-messages", "path": "/v1/messages"},
            ]
            config = {
                "seed": 1,
                "capture": {"url": upstream},
                "target": {"base_url": target, "routes": routes},
                "faults": [
                    {"name": "detector-down", "before": f"touch {flag}", "after": f"rm {flag}"}
                ],
            }
            place = tmp_path / "canarywire.yaml"
            place.write_text(yaml.safe_dump(config))
            command = [python, "-m", "canarywire", "run", "--config", str(place), "--out", "out"]
            done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert done.returncode == 0, report["findings"] or done.stderr
    faulted = [one for one in report["attacks"] if one["name"].startswith("fault/detector-down")]
    assert [one["status"] for one in faulted] == ["refused"] * len(routes)
