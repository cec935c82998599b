"""Workers under a policy that changes: one that dies comes back, and judges as the others do."""

import shutil
import signal
import time
from pathlib import Path

import httpx
import psutil

from governance.policy import load_bundle
from governance.policy.bundle import SHIPPED
from headrace.app.guard import GuardSetup
from headrace.app.home import Home
from headrace.app.master_key import load_secrets
from proxy.config import Route
from tests.proxy.gateway_process import GatewayProcess
from tests.support.ports import free_port
from tests.support.upstream import Upstream, as_json

READ = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "read_file", "arguments": {"path": "/home/u/.ssh/id_rsa"}},
}


def test_a_worker_comes_back_after_its_policy_was_changed(tmp_path: Path) -> None:
    folder = shutil.copytree(SHIPPED / "agents-safe", tmp_path / "policy")
    with Upstream(lambda _: as_json({"jsonrpc": "2.0", "id": 1, "result": {}})) as upstream:
        route = {"name": "tools", "upstream": upstream.url, "kind": "tool"}
        settings = {
            "routes": [route],
            "workers": 2,
            "port": free_port(),
            "forward_port": None,
            "admin_port": None,
        }
        secrets = load_secrets(tmp_path / "secrets", create=True)
        routes = (Route.model_validate(route),)
        guard = GuardSetup.of(load_bundle(folder), routes, Home(tmp_path / "home"), secrets)
        with GatewayProcess(tmp_path / "gateway", settings, guard=guard) as gateway:
            (folder / "actions.yaml").write_text(
                (folder / "actions.yaml").read_text().replace("calls: 20", "calls: 21")
            )
            for process in psutil.Process(gateway.pid).children():
                if "spawn_main" in " ".join(process.cmdline()):
                    process.send_signal(signal.SIGKILL)
            deadline = time.monotonic() + 120
            while gateway.log.read_text().count("is up again") < 2:
                assert gateway.runs
                assert time.monotonic() < deadline, gateway.log.read_text()[-2000:]
                time.sleep(0.05)
            answer = httpx.post(
                f"{gateway.url}/tools/mcp",
                json=READ,
                headers={"authorization": f"Bearer {gateway.key}"},
            )
            assert answer.json()["result"]["isError"]
            assert gateway.stop() == 0
        assert upstream.seen == []
