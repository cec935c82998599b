"""``headrace keys``: what the audit log does not know of is not done."""

import json
from pathlib import Path

import pytest

from headrace.cli import run
from proxy.clients.keys import KeyRegistry


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    return tmp_path


def made(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert run(["keys", "create", "--tenant", "acme", "--json"]) == 0
    found: dict[str, str] = json.loads(capsys.readouterr().out)
    return found


def refuse_entries(home: Path) -> None:
    """Let the audit log take no entry, as on a disk of its own that is full."""
    path = home / "audit" / "audit.jsonl"
    path.unlink()
    path.mkdir()


def test_a_key_is_neither_made_nor_changed_without_an_audit_entry(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    created = made(capsys)
    before = (home / "keys.json").read_bytes()
    refuse_entries(home)
    for command in (
        ["create", "--tenant", "acme"],
        ["limit", created["key_id"], "--requests-per-minute", "9"],
        ["rotate", created["key_id"], "--grace-minutes", "0"],
    ):
        assert run(["keys", *command]) == 3
        streams = capsys.readouterr()
        assert "the audit entry could not be written" in streams.err
        assert streams.out == ""
        assert (home / "keys.json").read_bytes() == before
    assert KeyRegistry.load(home / "keys.json").authenticate(created["key"]) is not None


def test_a_stolen_key_ends_whatever_the_audit_log_does(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    created = made(capsys)
    refuse_entries(home)
    assert run(["keys", "revoke", created["key_id"], "--yes"]) == 3
    assert KeyRegistry.load(home / "keys.json").authenticate(created["key"]) is None
    (home / "audit" / "audit.jsonl").rmdir()
    assert run(["keys", "revoke", created["key_id"], "--yes"]) == 0
    assert "key.revoked" in (home / "audit" / "audit.jsonl").read_text()


def test_a_key_that_is_not_there_is_a_wrong_argument_as_everywhere(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    created = made(capsys)
    assert run(["keys", "revoke", created["key_id"], "--yes"]) == 0
    changes = (["limit", "--requests-per-minute", "9"], ["rotate"])
    for name, told, commands in (
        ("nobody", "headrace keys list", (["revoke", "--yes"], *changes)),
        (created["key_id"], "create a new one", changes),
    ):
        for command, *options in commands:
            assert run(["keys", command, name, *options]) == 2
            assert told in capsys.readouterr().err
