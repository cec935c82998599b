"""Consent from files and from a company's own service."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from governance.consent import (
    EVERY_SUBJECT,
    ConsentEntry,
    ConsentRequest,
    EndUserLookup,
    MemoryConsents,
    NoAnswerError,
    judge_consent,
)
from governance.policy.consent import ConsentSpec
from governance.policy.selector import Facts
from headrace.app.settings import ConsentSettings
from headrace.cli import run
from headrace.services.consent import read_consents
from headrace.services.consent_service import ServiceConsents
from tests.support.consent_service import FAILURES, ConsentService, consent_service
from trajectory.canonical import bytes_hash
from trajectory.errors import ConfigurationError

NOW = datetime(2026, 5, 1, tzinfo=UTC)
CSV = "subject,purpose,granted,recorded_at,reference\njo@corp-mail.com,all,yes,2026-01-01,DPA-1\nmia@corp-mail.com,train_sft,no,,\n"


def test_csv_and_parquet_say_the_same(tmp_path: Path) -> None:
    table = tmp_path / "consents.csv"
    table.write_text(CSV)
    rows = read_consents(table, table.read_bytes(), now=NOW)
    assert len(rows) == 8
    assert rows[0].recorded_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert (rows[-1].granted, rows[-1].recorded_at) == (False, NOW)
    names = ("subject", "purpose", "granted", "recorded_at", "reference")
    columns = {name: [getattr(row, name) for row in rows] for name in names}
    pq.write_table(pa.table(columns), tmp_path / "consents.parquet")
    stored = tmp_path / "consents.parquet"
    assert read_consents(stored, stored.read_bytes(), now=NOW) == rows


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("subject,purpose\na,eval\n", "no column 'granted'"),
        ("subject,purpose,granted,colour\na,eval,yes,red\n", "unknown column 'colour'"),
        ("subject,purpose,granted,granted\na@b.io,eval,no,yes\n", "two columns 'granted'"),
        ("subject,purpose,granted\na@b.io,sell,yes\n", ":2: unknown purpose"),
        ("subject,purpose,granted\na@b.io,eval,maybe\n", ":2: granted must be"),
        ("subject,purpose,granted\n,eval,yes\n", ":2: subject is empty"),
        ("subject,purpose,granted,recorded_at\na@b.io,eval,yes,2027-01-01\n", "future"),
        ("subject,purpose,granted,recorded_at\na@b.io,eval,yes,soon\n", "ISO 8601"),
        (
            "subject,purpose,granted,recorded_at\na@b.io,eval,yes,0001-01-01T00:00:00+14:00\n",
            ":2: recorded_at is no ISO 8601",
        ),
        ("subject,purpose,granted\na@b.io,eval,yes,no\n", ":2: more values than columns"),
    ],
)
def test_wrong_lines_are_named_without_the_person(tmp_path: Path, text: str, says: str) -> None:
    table = tmp_path / "c.csv"
    table.write_text(text)
    with pytest.raises(ConfigurationError, match=says) as caught:
        read_consents(table, table.read_bytes(), now=NOW)
    assert "a@b.io" not in str(caught.value)


@pytest.mark.parametrize("subject", [491701234567.0, b"a@b.io", ["a@b.io"], True])
def test_a_person_who_is_no_text_is_not_taken_for_another(tmp_path: Path, subject: object) -> None:
    """A column of phone numbers becomes one of fractions where a cell is empty."""
    stored = tmp_path / "c.parquet"
    pq.write_table(pa.table({"subject": [subject], "purpose": ["all"], "granted": [False]}), stored)
    with pytest.raises(ConfigurationError, match=":1: subject must be text"):
        read_consents(stored, stored.read_bytes(), now=NOW)


def test_an_import_is_audited_and_pseudonymised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    table = tmp_path / "consents.csv"
    table.write_text(CSV)
    for extra, rows in (["--dry-run"], 0), ([], 7):
        assert run(["consent", "import", str(table), "--tenant", "acme", "--json", *extra]) == 0
        assert json.loads(capsys.readouterr().out)["withdrawn"] == 1
        assert run(["consent", "show", "jo@corp-mail.com", "--tenant", "acme", "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)) == rows
    assert run(["audit", "list", "--json"]) == 0
    entries = capsys.readouterr().out
    assert "consent.imported" in entries
    assert "corp-mail" not in entries


def test_a_pipe_is_read_once_and_the_audit_log_names_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    pipe = tmp_path / "consents.csv"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "headrace", "--home", str(tmp_path / "home")]
    importing = subprocess.Popen([*command, "consent", "import", str(pipe), "--tenant", "acme"])
    pipe.write_text(CSV)
    assert importing.wait(60) == 0
    entries = (tmp_path / "home" / "audit" / "audit.jsonl").read_text()
    assert bytes_hash(CSV.encode()) in entries


@pytest.mark.parametrize("nobody", ["", "  "])
def test_nobody_cannot_withdraw(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    nobody: str,
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    assert run(["consent", "withdraw", nobody, "--tenant", "acme"]) == 2
    assert "name the person" in capsys.readouterr().err


@pytest.fixture
def service() -> Iterator[ConsentService]:
    with consent_service() as server:
        yield server


def test_the_service_is_asked_once_and_its_answer_counts(
    service: ConsentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSENT_TOKEN", "s3cret")
    now = [0.0]
    withdrawn = ConsentEntry("acme", "subject_2", "eval", granted=False, recorded_at=NOW)
    consents = ServiceConsents(
        MemoryConsents([withdrawn]),
        ConsentSettings(url=service.url, token_env="CONSENT_TOKEN"),
        clock=lambda: now[0],
    )
    assert isinstance(consents, EndUserLookup)
    for _ in range(3):
        consents.ask("acme", "jo", "subject_1")
    assert service.asked == [{"tenant": "acme", "end_user": "jo", "token": "Bearer s3cret"}]
    said = {e.purpose: e.granted for e in consents.entries("acme", ["subject_1", EVERY_SUBJECT])}
    assert said["eval"] is True
    assert said["train_sft"] is False
    now[0] = 301
    consents.ask("acme", "jo", "subject_1")
    assert len(service.asked) == 2
    consents.ask("acme", "mia", "subject_2")
    entries = consents.entries("acme", ["subject_2"])
    assert [e.granted for e in entries if e.purpose == "eval"] == [False], "a withdrawal wins"


def test_two_users_under_one_pseudonym_have_what_both_agreed_to(service: ConsentService) -> None:
    service.granted = {"jo.ann": ["eval", "train_sft"], "Jo_Ann": ["eval", "debug"]}
    consents = ServiceConsents(MemoryConsents(), ConsentSettings(url=service.url))
    for name in ("jo.ann", "Jo_Ann", "jo.ann", "Jo_Ann"):
        consents.ask("acme", name, "subject_1")
    assert service.names() == ["jo.ann", "Jo_Ann"]
    said = consents.entries("acme", ["subject_1"])
    assert [one.purpose for one in said if one.granted] == ["eval"]


@pytest.mark.parametrize("days", [-1, 1])
def test_a_no_of_the_service_stands_against_every_grant(service: ConsentService, days: int) -> None:
    at = datetime.now(UTC) + timedelta(days=days)
    registry = MemoryConsents(
        [
            ConsentEntry("acme", "subject_1", "train_sft", granted=True, recorded_at=at),
            ConsentEntry("acme", EVERY_SUBJECT, "train_rl", granted=True, recorded_at=at),
            ConsentEntry("acme", "subject_1", "eval", granted=False, recorded_at=at),
            ConsentEntry("acme", "subject_2", "train_sft", granted=True, recorded_at=at),
        ]
    )
    consents = ServiceConsents(registry, ConsentSettings(url=service.url))
    consents.ask("acme", "jo", "subject_1")  # the service says: eval alone
    facts = Facts(tenant="acme")
    asked = ConsentRequest(facts, ("debug", "eval", "train_sft"), (), "subject_1")
    assert judge_consent(ConsentSpec(), consents, asked).purposes == ()
    unasked = ConsentRequest(facts, ("debug",), (), "subject_2")
    assert judge_consent(
        ConsentSpec(subject_grant_required=("train_sft",)), consents, unasked
    ).purposes == ("debug", "train_rl")


def test_a_service_that_is_away_does_not_stop_all_governing(service: ConsentService) -> None:
    now = [0.0]
    consents = ServiceConsents(
        MemoryConsents(),
        ConsentSettings(url=service.url),
        clock=lambda: now[0],
    )
    service.failure = "other"
    for number in range(100):
        with pytest.raises(NoAnswerError):
            consents.ask("acme", f"user {number}", f"subject_{number}")
    assert len(service.asked) == 3
    service.failure, now[0] = "", 31.0
    consents.ask("acme", "jo", "subject_1")
    service.failure = "other"
    with pytest.raises(NoAnswerError):
        consents.ask("acme", "mia", "subject_2")
    service.failure = ""
    consents.ask("acme", "mia", "subject_2")
    assert len(service.asked) == 6, "one failure is no absence"


@pytest.mark.parametrize("failure", FAILURES)
def test_without_an_answer_the_call_is_held(service: ConsentService, failure: str) -> None:
    service.failure = failure
    consents = ServiceConsents(MemoryConsents(), ConsentSettings(url=service.url))
    with pytest.raises(NoAnswerError, match="held"):
        consents.ask("acme", "jo", "subject_1")
    closed = ServiceConsents(MemoryConsents(), ConsentSettings(url="http://127.0.0.1:9/"))
    with pytest.raises(NoAnswerError):
        closed.ask("acme", "jo", "subject_1")


def test_one_batch_asks_so_much_and_the_next_goes_on(
    service: ConsentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.services.consent_service._MOST_QUESTIONS", 2)
    consents = ServiceConsents(MemoryConsents(), ConsentSettings(url=service.url))
    for name in ("jo", "jo", "mia"):
        consents.ask("acme", name, f"subject_{name}")
    with pytest.raises(NoAnswerError, match="enough"):
        consents.ask("acme", "kim", "subject_kim")
    consents.refresh()
    consents.ask("acme", "kim", "subject_kim")
    assert service.names() == ["jo", "mia", "kim"]


def test_people_are_not_asked_about_in_clear() -> None:
    with pytest.raises(ConfigurationError, match="https"):
        ServiceConsents(MemoryConsents(), ConsentSettings(url="http://consent.example/"))
    with pytest.raises(ConfigurationError, match="NO_SUCH_TOKEN"):
        ServiceConsents(
            MemoryConsents(),
            ConsentSettings(url="https://consent.example/", token_env="NO_SUCH_TOKEN"),
        )
