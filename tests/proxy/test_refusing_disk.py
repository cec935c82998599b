"""A disk that refuses stops no call that may pass: not at the start, nor when a worker dies."""

import json
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from proxy.clients.keys import KeyRegistry
from proxy.config import GatewayConfig
from proxy.spool import Cursor, SpoolReader
from tests.proxy.gateway_process import SPOOL_KEY, GatewayProcess
from tests.support.ports import free_port
from tests.support.upstream import Upstream, plain


def until(done: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def set_limit(pid: int, size: int) -> None:
    """Let a process grow its files up to a size; -1 is without limit."""
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most if size < 0 else size, most))


def test_a_gateway_starts_beside_a_disk_that_refuses(tmp_path: Path) -> None:
    with Upstream(lambda seen: plain(200, seen.body)) as upstream:
        config = GatewayConfig.model_validate(
            {
                "port": 0,
                "forward_port": None,
                "admin_port": 0,
                "authority": str(tmp_path / "ca"),
                "keys": str(tmp_path / "keys.json"),
                "limits": str(tmp_path / "limits.sqlite"),
                "spool": {"directory": str(tmp_path / "spool")},
                "routes": [
                    {"name": "passes", "upstream": upstream.url},
                    {"name": "refuses", "upstream": upstream.url, "without_capture": "refuse"},
                ],
            }
        )
        key = KeyRegistry.load(config.keys).create(tenant_id="acme", app_id="x").secret
        settings = tmp_path / "gateway.json"
        settings.write_text(config.model_dump_json())
        command = [sys.executable, "-m", "tests.proxy.refusing_disk", str(settings)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            log: list[str] = []
            listening = threading.Thread(target=log.extend, args=(process.stderr,))
            listening.start()
            line = process.stdout.readline()
            assert line, log
            (_, port), (_, admin) = json.loads(line)
            with httpx.Client(
                base_url=f"http://127.0.0.1:{port}", headers={"x-headrace-key": key}
            ) as client:
                assert client.post("/passes/x", content=b"one").content == b"one"
                until(lambda: client.post("/refuses/x").status_code == 503)
                text = httpx.get(f"http://127.0.0.1:{admin}/metrics").text
                assert 'headrace_uncaptured_total{reason="spool-' in text
                assert "EFBIG" in text
                assert len(list((tmp_path / "spool").glob("*/*.spool"))) <= 1
                until(lambda: any("EFBIG" in line for line in log))
                set_limit(process.pid, -1)
                until(lambda: client.post("/refuses/x", content=b"two").status_code == 200)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            listening.join(60)
        assert any("the disk" in line for line in log)
        found = SpoolReader(tmp_path / "spool", SPOOL_KEY).take(Cursor()).records
        assert found


@pytest.fixture
def pair(tmp_path: Path) -> dict[str, object]:
    """Return settings of two workers."""
    return {
        "workers": 2,
        "port": free_port(),
        "forward_port": None,
        "admin_port": None,
    }


def workers(gateway: GatewayProcess) -> list[psutil.Process]:
    """Return the workers that live."""
    found = []
    for each in psutil.Process(gateway.pid).children():
        with suppress(psutil.Error):  # it ends at this moment
            if "spawn_main" in " ".join(each.cmdline()):
                found.append(each)
    return found


@pytest.mark.slow
def test_a_worker_that_dies_takes_no_other_down(tmp_path: Path, pair: dict[str, object]) -> None:
    with Upstream(lambda seen: plain(200, seen.body)) as upstream:
        settings = {**pair, "routes": [{"name": "up", "upstream": upstream.url}]}
        with GatewayProcess(tmp_path, settings) as gateway:

            def answers() -> bool:
                headers = {"authorization": f"Bearer {gateway.key}"}
                answer = httpx.post(f"{gateway.url}/up/x", content=b"x", headers=headers)
                return answer.content == b"x"

            def ended(count: int) -> bool:
                return gateway.log.read_text().count("starting it again") >= count

            first, second = workers(gateway)
            # One of them cannot start again while the registry is damaged.
            registry = tmp_path / "keys.json"
            sound = registry.read_bytes()
            registry.write_bytes(b"{")
            first.kill()
            until(lambda: ended(2))
            assert gateway.runs
            assert all(answers() for _ in range(10))
            assert [each.pid for each in workers(gateway) if each.pid == second.pid]
            registry.write_bytes(sound)
            until(lambda: gateway.log.read_text().count("worker 0 is up again") == 1)
            # The disk refuses: a worker comes back all the same, and later the capture.
            for process in (psutil.Process(gateway.pid), *workers(gateway)):
                set_limit(process.pid, 0)
            second.kill()
            until(lambda: [p.pid for p in workers(gateway) if p.pid != second.pid][1:] != [])
            assert all(answers() for _ in range(20))
            for process in (psutil.Process(gateway.pid), *workers(gateway)):
                set_limit(process.pid, -1)
            until(lambda: answers() and bool(gateway.records(1, seconds=0.2)))
            assert gateway.stop() == 0
