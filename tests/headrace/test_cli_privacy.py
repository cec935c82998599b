"""The privacy officer's commands: reveal, erase with a certificate, quarantine."""

import json
import os
import pwd
from pathlib import Path

import pytest

from governance.redact.pseudonym import installation_seal, subject_id
from governance.redact.reversible import seal
from headrace.cli import run
from headrace.home import Home
from headrace.master_key import load_secrets
from headrace.subject_keys import subject_keys_of

USER = pwd.getpwuid(os.getuid()).pw_name
PERSON = "jo.frame@corp-mail.com"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    return Home(tmp_path).create()


def done(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    result = run(list(arguments))
    streams = capsys.readouterr()
    assert result == code, streams.err
    return streams.out, streams.err


def sealed(home: Home, *, own_key: bool) -> str:
    secrets = load_secrets(home.secrets, create=True)
    pseudonym_key = secrets.derive(b"pseudonym")
    if not own_key:
        return seal(installation_seal(pseudonym_key), "EMAIL_ADDRESS", PERSON, "acme", None)
    subject = subject_id(pseudonym_key, "acme", PERSON)
    store = subject_keys_of(home, secrets)
    mark = seal(store.key(subject), "EMAIL_ADDRESS", PERSON, "acme", subject)
    store.commit()
    return mark


def test_nobody_may_reveal_by_default_and_the_try_is_noted(
    capsys: pytest.CaptureFixture[str], home: Home
) -> None:
    mark = sealed(home, own_key=False)
    out, err = done(capsys, "reveal", mark, "--reason", "T-1", code=2)
    assert PERSON not in out + err
    assert "policy.reveal_users" in err
    assert "value.reveal_refused" in done(capsys, "audit", "list", "--json")[0]


@pytest.mark.parametrize("own_key", [True, False])
def test_who_may_reveals_with_an_audit_entry(
    capsys: pytest.CaptureFixture[str],
    home: Home,
    monkeypatch: pytest.MonkeyPatch,
    own_key: bool,
) -> None:
    (home.root / "headrace.yaml").write_text(f"policy: {{reveal_users: [{USER}]}}\n")
    monkeypatch.setenv("LOGNAME", "somebody-else")
    out, _ = done(capsys, "reveal", sealed(home, own_key=own_key), "--reason", "T-1", "--json")
    assert json.loads(out) == {"entity": "EMAIL_ADDRESS", "value": PERSON}
    entries = json.loads(done(capsys, "audit", "list", "--json")[0])
    assert entries[-1]["action"] == "value.revealed"
    assert entries[-1]["actor"] == USER
    assert PERSON not in json.dumps(entries)


def test_an_erasure_destroys_the_key_and_is_certified(
    capsys: pytest.CaptureFixture[str], home: Home, tmp_path: Path
) -> None:
    (home.root / "headrace.yaml").write_text(f"policy: {{reveal_users: [{USER}]}}\n")
    mark = sealed(home, own_key=True)
    out, _ = done(capsys, "erase", PERSON, "--tenant", "acme", "--yes", "--json")
    report = json.loads(out)
    assert report["keys_destroyed"] == 1
    _, err = done(capsys, "reveal", mark, "--reason", "T-2", code=3)
    assert "destroyed" in err
    certificate = Path(report["certificate"])
    said = done(capsys, "audit", "verify-certificate", str(certificate), "--json")[0]
    assert json.loads(said)["subject_keys_destroyed"] == 1
    key = json.loads(done(capsys, "audit", "public-key", "--json")[0])["public_key"]
    changed = tmp_path / "changed.json"
    changed.write_text(certificate.read_text().replace('"trajectories": 0', '"trajectories": 5'))
    _, err = done(capsys, "audit", "verify-certificate", str(changed), "--public-key", key, code=3)
    assert "does not hold" in err
    assert PERSON not in certificate.read_text()


def test_a_dry_run_destroys_nothing(capsys: pytest.CaptureFixture[str], home: Home) -> None:
    sealed(home, own_key=True)
    done(capsys, "erase", PERSON, "--tenant", "acme", "--dry-run")
    secrets = load_secrets(home.secrets)
    subject = subject_id(secrets.derive(b"pseudonym"), "acme", PERSON)
    assert subject_keys_of(home, secrets).known(subject) is not None
    assert not home.certificates.exists()
