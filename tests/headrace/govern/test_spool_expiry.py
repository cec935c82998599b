"""Raw captures that nobody governs: gone after ``gateway.spool.max_age_hours``, told and audited."""

import json
import os
import time
from pathlib import Path

import pytest

from governance.audit import AuditLog
from headrace.app.home import Home
from headrace.app.master_key import load_secrets
from headrace.cli import run
from headrace.govern.spool_expiry import EXPIRED
from proxy.spool import SpoolWriter
from proxy.spool.expiry import expire
from tests.proxy.spool.scripts import ExchangeScript

DAY = 86_400.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    return Home(tmp_path).create()


def captured(home: Home, days: float) -> Path:
    """Return the segment of a gateway that died so many days ago."""
    secrets = load_secrets(home.secrets, create=True)
    with SpoolWriter(home.spool, secrets.derive(b"spool")) as writer:
        ExchangeScript(writer, 1).whole(b"my number is 212 555 0142")
    path = home.spool / writer.writer / "00000001.spool"
    then = time.time() - days * DAY
    os.utime(path, (then, then))
    return path


def swept(home: Home) -> list[dict[str, object]]:
    log = AuditLog(
        home.audit / "audit.jsonl", load_secrets(home.secrets, create=True).derive(b"audit")
    )
    return [json.loads(entry.detail) for entry in log.entries() if entry.action == EXPIRED]


def test_a_sweep_tells_deletes_and_writes_down(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    old, fresh = captured(home, days=15), captured(home, days=13)
    assert run(["lake", "expire", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["raw segments"] == 1
    assert old.exists()
    assert swept(home) == []
    assert run(["lake", "expire", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["raw segments"] == 1
    assert not old.exists()
    assert fresh.exists()
    (entry,) = swept(home)
    assert entry["segments"] == 1
    assert run(["lake", "maintain", "--json"]) == 0
    assert len(swept(home)) == 1
    assert run(["audit", "verify", "--json"]) == 0


def test_what_a_gateway_deleted_by_itself_comes_into_the_audit_log(home: Home) -> None:
    captured(home, days=40)
    expire(home.spool, 14 * DAY)
    assert swept(home) == []
    assert run(["lake", "maintain", "--json"]) == 0
    (entry,) = swept(home)
    assert str(entry["last_written"]) < str(entry["deleted_at"])


@pytest.mark.parametrize(("hours", "left"), [("24", False), ("240", True)])
def test_the_setting_decides(
    home: Home, monkeypatch: pytest.MonkeyPatch, hours: str, left: bool
) -> None:
    path = captured(home, days=5)
    monkeypatch.setenv("HEADRACE_GATEWAY_SPOOL_MAX_AGE_HOURS", hours)
    assert run(["lake", "maintain", "--json"]) == 0
    assert path.exists() is left
