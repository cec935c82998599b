"""``headrace gateway``: probe, inventory and the spool's key, as the command line gives them."""

import json
import socket
from pathlib import Path

import pytest

from headrace.cli import run
from tests.proxy.routes.test_probe import exact, without
from tests.support.upstream import Upstream, as_json


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HEADRACE_CONFIG", "HEADRACE_MASTER_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HEADRACE_GATEWAY_ADMIN_PORT", str(probe.getsockname()[1]))
    return tmp_path


def settings(home: Path, **upstreams: str) -> None:
    routes = [
        {"name": name, "upstream": url, "capture": "tokens"} for name, url in upstreams.items()
    ]
    (home / "headrace.yaml").write_text(json.dumps({"gateway": {"routes": routes}}))


def test_probe(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Upstream(exact) as good, Upstream(without) as poor:
        settings(home, good=good.url, poor=poor.url)
        assert run(["gateway", "probe", "good", "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["route"], row["token_ids"], row["streamed_token_ids"]) == ("good", True, True)
        assert run(["gateway", "probe"]) == 1
        assert "no token ids" in capsys.readouterr().out
        assert run(["gateway", "probe", "other"]) == 2
        assert "Routes: good, poor." in capsys.readouterr().err


def test_the_inventory_needs_a_gateway(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gateway", "inventory"]) == 3
    assert "is it running?" in capsys.readouterr().err


def test_the_inventory_shows_times_as_times(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"host": "h", "port": 4433, "connections": 2, "first_seen": 1.2e9, "last_seen": 1.3e9}
    with Upstream(lambda _: as_json([row])) as admin:
        monkeypatch.setenv("HEADRACE_GATEWAY_ADMIN_PORT", str(admin.port))
        assert run(["gateway", "inventory"]) == 0
        shown = capsys.readouterr().out
        assert "2008-01-10 21:20:00" in shown
        assert "4433" in shown
        assert run(["gateway", "inventory", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["last_seen"] == "2011-03-13T07:06:40+00:00"
    assert found["port"] == 4433


def test_the_key_of_the_spool(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = home / "secrets" / "spool.key"
    for kept in (0, 1):
        assert run(["gateway", "rotate-spool-key"]) == 0
        assert f"older keys kept: {kept}" in capsys.readouterr().out
    assert len(file.read_text().split()) == 2
