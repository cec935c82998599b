"""Versions come up, say where they are, and go, whoever runs them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import openai
import pytest

from headrace.serving.hosts import (
    ExternalServers,
    Host,
    TransformersHost,
    VllmServers,
    tool_arguments,
)
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json
from tests.train.test_chat_templates import templates
from tests.trajectory.test_child_process import ended
from trajectory.errors import ConfigurationError

_VLLM = '''
"""Stands for vLLM's command line: serves what it is told, and says what it was told."""
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
def main():
    command, folder, *given = sys.argv[1:]
    assert command == "serve" and os.path.isdir(folder), sys.argv
    options = {one: None for one in given if one == "--enable-auto-tool-choice"}
    pairs = [one for one in given if one not in options]
    options |= dict(zip(pairs[::2], pairs[1::2]))
    with open(os.path.join(folder, "told.json"), "w") as file:
        json.dump(options, file)
    if "HEADRACE_MASTER_KEY" in os.environ:
        sys.exit(4)
    if options.get("--max-model-len") == "0":
        sys.exit(3)
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            allowed = self.headers["authorization"] == "Bearer " + os.environ["VLLM_API_KEY"]
            data = [{"id": options["--served-model-name"]}] if allowed else []
            body = json.dumps({"data": data}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        def log_message(self, *args):
            pass
    HTTPServer((options["--host"], int(options["--port"])), Handler).serve_forever()
if __name__ == "__main__":
    main()
'''


def until[T](found: Callable[[], T | None], seconds: float = 60.0) -> T:
    """Ask until there is an answer."""
    end = time.monotonic() + seconds
    while (value := found()) is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    return value


def test_this_process_loads_versions_beside_each_other(model: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        host = stack.enter_context(TransformersHost.open("127.0.0.1", 0, "sk-gate"))
        one: Host = host
        for label in ("shop@0001", "shop@0002"):
            one.begin(label, model)
        url = until(lambda: one.ready("shop@0001"))
        assert until(lambda: one.ready("shop@0002")) == url
        client = stack.enter_context(openai.OpenAI(base_url=f"{url}/v1", api_key="sk-gate"))
        answer = client.chat.completions.create(
            model="shop@0002", messages=[{"role": "user", "content": "hi"}], max_tokens=4
        )
        assert answer.model == "shop@0002"
        one.begin("shop@0003", tmp_path)
        assert "no tokenizer" in until(lambda: one.problem("shop@0003"))
        assert one.ready("shop@0003") is None
        one.end("shop@0001")
        assert one.ready("shop@0001") is None
        assert [found.id for found in client.models.list()] == ["shop@0002"]
        port = int(url.rpartition(":")[2])
        with (
            pytest.raises(ConfigurationError, match=r"choose another serve\.port"),
            TransformersHost.open("127.0.0.1", port, "k"),
        ):
            pass


def test_vllm_gets_a_server_for_each_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True)
    (package / "main.py").write_text(_VLLM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    host = VllmServers(("--max-model-len", "64"), tmp_path / "logs", "sk-gate")
    try:
        host.begin("shop@0001", tmp_path)
        assert until(lambda: host.ready("shop@0001")).startswith("http://127.0.0.1:")
        assert host.problem("shop@0001") is None
        host.end("shop@0001")
        assert host.ready("shop@0001") is None
        host.arguments = ("--max-model-len", "0")
        monkeypatch.setenv("HEADRACE_MASTER_KEY", "0" * 64)
        host.begin("shop@0002", tmp_path)
        assert "vLLM ended with 3" in until(lambda: host.problem("shop@0002"))
        assert (tmp_path / "logs" / "vllm-shop-0002.log").stat().st_mode & 0o077 == 0
    finally:
        host.close()


@pytest.mark.parametrize(
    ("template", "parser"),
    [
        ("qwen2_5", "hermes"),
        ("qwen3", "hermes"),
        ("qwen3_5_think", "qwen3_xml"),
        ("llama3_1", "llama3_json"),
        ("gptoss", "openai"),
        ("glm4moe", "glm45"),
        ("llama3", None),
        ("phi3", None),
    ],
)
def test_vllm_is_told_how_the_models_tool_calls_are_read(
    template: str, parser: str | None, tmp_path: Path
) -> None:
    text = (templates() / f"{template}.jinja").read_text(encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": text}))
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "chat_template.jinja").write_text(text)
    wanted = ("--enable-auto-tool-choice", "--tool-call-parser", parser) if parser else ()
    for folder in (tmp_path, tmp_path / "new"):
        assert tool_arguments(folder, ()) == wanted
        assert tool_arguments(folder, ("--tool-call-parser", "own")) == ()
        assert tool_arguments(folder, ("--tool-call-parser=own",)) == ()


def test_vllm_is_started_so_that_agents_may_send_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True)
    (package / "main.py").write_text(_VLLM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    text = (templates() / "qwen2_5.jinja").read_text(encoding="utf-8")
    (tmp_path / "chat_template.jinja").write_text(text)
    host = VllmServers(("--max-model-len", "64"), tmp_path / "logs", "sk-gate")
    try:
        host.begin("shop@0001", tmp_path)
        until(lambda: host.ready("shop@0001"))
        told = json.loads((tmp_path / "told.json").read_text())
        assert told["--tool-call-parser"] == "hermes"
        assert "--enable-auto-tool-choice" in told
        assert told["--max-model-len"] == "64"
    finally:
        host.close()


_SERVES = """
import sys, time
from pathlib import Path
from headrace.serving.hosts import VllmServers
folder = Path(sys.argv[1])
VllmServers((), folder / "logs", "sk-gate").begin("shop@0001", folder)
time.sleep(600)
"""
_FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
print(os.getpid(), child.pid, flush=True)
time.sleep(600)
"""


def test_no_vllm_process_outlives_a_server_that_is_killed(tmp_path: Path) -> None:
    package = tmp_path / "site" / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True)
    (package / "main.py").write_text(_FAMILY)
    paths = os.pathsep.join([str(tmp_path / "site"), *filter(None, sys.path)])
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVES, str(tmp_path)], env={**os.environ, "PYTHONPATH": paths}
    )
    try:
        log = tmp_path / "logs" / "vllm-shop-0001.log"
        pids = until(lambda: log.read_text().split()[:2] or None if log.exists() else None)
        assert len(pids) == 2
        assert not any(ended(int(pid)) for pid in pids)
    finally:
        server.kill()
        server.wait()
    until(lambda: all(ended(int(pid)) for pid in pids) or None)


def test_servers_of_ones_own_are_asked_what_they_have(tmp_path: Path) -> None:
    listed = ["shop@0001"]

    def server(request: ReceivedRequest) -> Reply:
        allowed = request.header("authorization") == "Bearer sk-gate"
        return as_json({"data": [{"id": name} for name in listed if allowed]})

    with Upstream(server) as upstream:
        host = ExternalServers(upstream.url, "sk-gate")
        assert host.ready("shop@0001") == upstream.url
        assert host.ready("shop@0002") is None
        assert "does not list it" in (host.problem("shop@0002") or "")
        listed.append("shop@0002")
        assert host.ready("shop@0002") == upstream.url
        assert host.problem("shop@0002") is None
    assert host.ready("shop@0002") == upstream.url, "a short silence changes nothing"
