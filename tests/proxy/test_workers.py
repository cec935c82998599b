"""Several workers: one port, one spool, each its own writer; a dead one comes back."""

import json
import resource
import signal
import time
from pathlib import Path

import httpx
import psutil
import pytest

from tests.proxy.gateway_process import GatewayProcess
from tests.support.ports import free_port
from tests.support.upstream import Upstream, plain


def publish(file: Path, version: str, url: str) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps({"models": {"shop": {"live": {"label": version, "url": url}}}}))
    fresh.replace(file)


@pytest.mark.slow
def test_workers_share_a_port_serve_the_same_versions_and_are_mended(tmp_path: Path) -> None:
    with Upstream(lambda seen: plain(200, seen.body)) as upstream:
        settings = {
            "routes": [{"name": "up", "upstream": upstream.url}, {"name": "shop", "model": "shop"}],
            "serving": str(tmp_path / "serving.json"),
            "workers": 2,
            "port": free_port(),
            "forward_port": None,
            "admin_port": None,
        }
        with GatewayProcess(tmp_path, settings) as gateway:
            headers = {"authorization": f"Bearer {gateway.key}"}

            def call(count: int) -> None:
                for number in range(count):
                    body = b"%d" % number
                    answer = httpx.post(f"{gateway.url}/up/x", content=body, headers=headers)
                    assert answer.content == body

            asked = 0

            def ask(count: int) -> set[str]:
                nonlocal asked
                asked += count
                url = f"{gateway.url}/shop/x"
                return {
                    httpx.post(url, json={}, headers=headers).json().get("model")
                    for _ in range(count)
                }

            call(30)
            assert len(gateway.exchanges(30)) == 30
            assert len([p for p in (tmp_path / "spool").iterdir() if p.is_dir()]) == 2
            for version in ("shop@0001", "shop@0002", "shop@0001"):
                publish(tmp_path / "serving.json", version, upstream.url)
                deadline = time.monotonic() + 60
                while ask(12) != {version}:
                    assert time.monotonic() < deadline
            served = {e.served for e in gateway.exchanges(asked)}
            assert served - {""} == {"shop@0001", "shop@0002"}  # refused before the first one
            parent = psutil.Process(gateway.pid)
            workers = [p for p in parent.children() if "spawn_main" in " ".join(p.cmdline())]
            assert len(workers) == 2
            workers[0].send_signal(signal.SIGKILL)
            deadline = time.monotonic() + 40
            while len([p for p in (tmp_path / "spool").iterdir() if p.is_dir()]) < 3:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            call(10)
            assert len(gateway.exchanges(10)) == 10
            assert gateway.stop() == 0


@pytest.mark.slow
def test_workers_end_when_nobody_watches_over_them(tmp_path: Path) -> None:
    """Left alone they would serve on with settings of yesterday, beside the next gateway."""
    settings = {"workers": 2, "port": free_port(), "forward_port": None, "admin_port": None}
    with GatewayProcess(tmp_path, settings) as gateway:
        children = psutil.Process(gateway.pid).children()
        gateway.stop(signal.SIGKILL)
        _, alive = psutil.wait_procs(children, timeout=60)
        assert alive == []


def test_where_no_worker_can_be_started_the_others_go_on_until_one_can(tmp_path: Path) -> None:
    settings = {
        "workers": 2,
        "port": free_port(),
        "forward_port": None,
        "admin_port": None,
        "capture": False,
    }
    with GatewayProcess(tmp_path, settings) as gateway:
        parent = psutil.Process(gateway.pid)

        def workers() -> list[psutil.Process]:
            return [p for p in parent.children() if "spawn_main" in " ".join(p.cmdline())]

        def said(text: str) -> None:
            deadline = time.monotonic() + 60
            while text not in gateway.log.read_text():
                assert gateway.runs
                assert time.monotonic() < deadline
                time.sleep(0.05)

        _, most = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (parent.num_fds() - 1, most))
        workers()[0].send_signal(signal.SIGKILL)
        said("cannot be started: Too many open files")
        assert httpx.get(f"{gateway.url}/headrace/v1/health").status_code == 200
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (most, most))
        said("is up again")
        assert len(workers()) == 2
        assert gateway.stop() == 0
