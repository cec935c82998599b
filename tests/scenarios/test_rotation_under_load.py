"""Keys rotate while agents work and the governor reads: no call fails, and each one is in the lake once."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.cli import run
from headrace.processes.supervisor import headrace_command
from tests.support.upstream import Upstream, as_json
from trajectory.child_process import free_port

_CLIENTS = 4
_ROTATIONS = 6


def _answer(_: Any) -> Any:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "Seven."},
        "finish_reason": "stop",
    }
    return as_json(
        {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": [choice]}
    )


class Agents:
    """Agents that call with whatever key is the newest, each call with words of its own."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self.key = key
        self.calls = [0] * _CLIENTS
        self.asked: list[str] = []
        self.refused: list[str] = []
        self.over = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(_CLIENTS)]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in self._threads:
                thread.join()

    def each_calls_twice(self) -> None:
        """Wait: what a call began with is then the newest secret, or the one before."""
        known = [*self.calls]
        while any(now < then + 2 for now, then in zip(self.calls, known, strict=True)):
            assert not self.refused
            time.sleep(0.01)

    def _work(self, agent: int) -> None:
        with httpx.Client(timeout=60) as client:
            while not self.over.is_set():
                question = f"How many lamps has house {agent}-{self.calls[agent]}?"
                answer = client.post(
                    f"{self.url}/shop/v1/chat/completions",
                    headers={"x-headrace-key": self.key},
                    json={"model": "m", "messages": [{"role": "user", "content": question}]},
                )
                (self.asked if answer.status_code == 200 else self.refused).append(question)
                self.calls[agent] += 1
                time.sleep(0.1)


@contextmanager
def _process(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(headrace_command([*arguments]), stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 0, said.decode()


def _until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 200
    while not done():
        assert time.monotonic() < until
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        return bool(httpx.get(url).status_code)
    except httpx.TransportError:
        return False


@pytest.mark.slow
def test_no_call_fails_and_none_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("HEADRACE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))

    def said(*arguments: str) -> Any:
        assert run([*arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    with Upstream(_answer) as upstream:
        port = free_port()
        gateway = {
            "routes": [{"name": "shop", "upstream": upstream.url}],
            "port": port, "forward_port": None, "admin_port": None, "workers": 2,
        }  # fmt: skip
        (tmp_path / "headrace.yaml").write_text(json.dumps({"gateway": gateway}))
        made = said("keys", "create", "--tenant", "acme", "--app", "bot", "--purpose", "train_sft")
        url = f"http://127.0.0.1:{port}"
        agents = Agents(url, made["key"])
        with _process("gateway"), _process("govern"):
            _until(lambda: _answers(url))
            with agents.at_work():
                _until(lambda: any((tmp_path / "lake" / "steps").rglob("*.parquet")))
                for _ in range(_ROTATIONS):
                    agents.each_calls_twice()
                    assert run(["gateway", "rotate-spool-key"]) == 0
                    capsys.readouterr()
                    agents.key = said("keys", "rotate", made["key_id"])["key"]
                agents.each_calls_twice()
        assert run(["govern", "--once"]) == 0
    assert agents.refused == []
    capsys.readouterr()
    asked = "SELECT parts FROM conversation WHERE role = 'user'"
    found = [part["text"] for row in said("sql", asked) for part in json.loads(row["parts"])]
    assert sorted(found) == sorted(agents.asked)
