"""The privacy officer's commands: reveal, erase with a certificate, quarantine."""

import errno
import json
import os
import pwd
import shutil
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from governance.audit import AuditLog
from governance.policy.bundle import SHIPPED
from governance.redact.pseudonym import installation_seal, subject_id
from governance.redact.reversible import seal
from headrace.app.context import AppContext
from headrace.app.home import Home
from headrace.app.lock import only_one
from headrace.app.master_key import load_secrets, subject_keys_of
from headrace.app.setting_sources import load_settings
from headrace.cli import run
from headrace.console.users import local_user
from headrace.govern.quarantine_store import quarantine_of
from headrace.govern.worker import build_pipeline, govern_once
from headrace.services import four_eyes, quarantine
from lakehouse.lake import Lake
from proxy.inline.kept_histories import HistoryOwner, KeptHistories, KeptHistory
from proxy.spool import SpoolUnavailableError, SpoolWriter
from tests.governance.factories import exchange
from tests.headrace.test_pipeline import conversation
from tests.lakehouse import make
from tests.proxy.spool.scripts import ExchangeScript
from trajectory.errors import ConfigurationError
from trajectory.exchange import Exchange

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
    return seal(store.key(subject), "EMAIL_ADDRESS", PERSON, "acme", subject)


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
    entries = json.loads(done(capsys, "audit", "list", "--json")[0])
    assert entries[-1]["action"] == "value.reveal_failed", "nobody saw it"
    certificate = Path(report["certificate"])
    said = done(capsys, "audit", "verify-certificate", str(certificate), "--json")[0]
    assert json.loads(said)["subject_keys_destroyed"] == 1
    assert json.loads(said)["sealed_captures"]["files"] == 0
    again = json.loads(done(capsys, "erase", PERSON, "--tenant", "acme", "--yes", "--json")[0])
    second = json.loads(Path(again["certificate"]).read_text())["statement"]
    assert second["erasures_before"] == [report["removal_id"]]
    key = json.loads(done(capsys, "audit", "public-key", "--json")[0])["public_key"]
    without_headrace(certificate, key)
    changed = tmp_path / "changed.json"
    changed.write_text(certificate.read_text().replace('"trajectories": 0', '"trajectories": 5'))
    _, err = done(capsys, "audit", "verify-certificate", str(changed), "--public-key", key, code=3)
    assert "does not hold" in err
    assert PERSON not in certificate.read_text()


@pytest.mark.parametrize("before", ["sweep_near", "_audit_end", "_certify"])
def test_an_erasure_that_was_killed_before_its_certificate_is_ended_by_the_next(
    capsys: pytest.CaptureFixture[str], home: Home, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise MemoryError

    sealed(home, own_key=True)
    with monkeypatch.context() as patched:
        patched.setattr(f"headrace.services.erasure.{before}", killed)
        assert run(["erase", PERSON, "--tenant", "acme", "--yes"]) != 0
    assert not home.certificates.exists()
    report = json.loads(done(capsys, "erase", PERSON, "--tenant", "acme", "--yes", "--json")[0])
    statement = json.loads(Path(report["certificate"]).read_text())["statement"]
    assert len(statement["killed_erasures_ended"]) == 1
    assert statement["erasures_before"] == []
    secrets = load_secrets(home.secrets)
    subject = subject_id(secrets.derive(b"pseudonym"), "acme", PERSON)
    assert subject_keys_of(home, secrets).known(subject) is None


def without_headrace(certificate: Path, key: str) -> None:
    """Check a certificate as docs/privacy-officer.md tells those who do not run Headrace."""
    stated = json.loads(certificate.read_text())
    text = json.dumps(
        stated["statement"], sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
    public.verify(bytes.fromhex(stated["signature"]), text.encode())


def test_a_dry_run_destroys_nothing(capsys: pytest.CaptureFixture[str], home: Home) -> None:
    sealed(home, own_key=True)
    done(capsys, "erase", PERSON, "--tenant", "acme", "--dry-run")
    secrets = load_secrets(home.secrets)
    subject = subject_id(secrets.derive(b"pseudonym"), "acme", PERSON)
    assert subject_keys_of(home, secrets).known(subject) is not None
    assert not home.certificates.exists()


def cut_off(home: Home, number: int = 0) -> None:
    """Capture one exchange whose answer was cut, which the default policy holds back."""
    secrets = load_secrets(home.secrets, create=True)
    with SpoolWriter(home.spool, secrets.derive(b"spool")) as writer:
        request, answer = conversation(2 * number)
        ExchangeScript(writer, 1 + number, at=time.time() - 60).whole(
            request, answer.replace(b'"stop"', b"null")
        )


def judge(home: Home) -> None:
    """Govern what lies in the spool, under the policy in force, without a names model."""
    settings = load_settings(home=home.root)
    with only_one(home.state):
        pipeline = build_pipeline(settings, home, load_secrets(home.secrets), print)
        assert list(govern_once(pipeline))


def test_a_release_from_quarantine_waits_for_a_second_person(
    capsys: pytest.CaptureFixture[str], home: Home, light_policy: Path
) -> None:
    settings = f"policy: {{bundle: {light_policy}, four_eyes: [release]}}\n"
    (home.root / "headrace.yaml").write_text(settings)
    cut_off(home)
    judge(home)
    (case,) = json.loads(done(capsys, "quarantine", "list", "--json")[0])
    assert run(["--home", str(home.root), "quarantine", "release", case["case"]]) == 1
    app = AppContext(home.root, debug=False)
    (asked,) = four_eyes.requests_of(app).list()
    assert (asked.act, asked.status) == ("release", "waiting")
    released = [one for one in app.audit.entries() if one.action == "quarantine.released"]
    assert released == []
    with pytest.raises(ConfigurationError, match="somebody else"):
        four_eyes.approve(app, app.user, asked.request_id, reason="me", progress=lambda *_: None)
    second = local_user("oda")
    made = four_eyes.approve(
        app, second, asked.request_id, reason="looked at it", progress=lambda *_: None
    )
    assert made.status == "done"
    released = [one for one in app.audit.entries() if one.action == "quarantine.released"]
    assert len(released) == 1


@pytest.mark.parametrize("other", ["release", "drop"])
def test_a_case_is_released_or_dropped_once_by_whoever_comes_first(
    capsys: pytest.CaptureFixture[str],
    home: Home,
    light_policy: Path,
    monkeypatch: pytest.MonkeyPatch,
    other: str,
) -> None:
    (home.root / "headrace.yaml").write_text(f"policy: {{bundle: {light_policy}}}\n")
    cut_off(home)
    judge(home)
    first, second = (AppContext(home.root, debug=False) for _ in range(2))
    chosen = quarantine.cases(second)
    begun: list[threading.Thread] = []
    wrote = quarantine.write_again

    def while_another_begins(writer: SpoolWriter, held: Exchange) -> str:
        if not begun:
            act = quarantine.release if other == "release" else quarantine.drop
            begun.append(threading.Thread(target=act, args=(second, chosen, "oda")))
            begun[0].start()
            begun[0].join(0.5)
        return wrote(writer, held)

    monkeypatch.setattr(quarantine, "write_again", while_another_begins)
    assert len(quarantine.release(first, quarantine.cases(first), "una")) == 1
    begun[0].join()
    (case,) = quarantine.cases(first, status="all")
    assert (case["status"], json.loads(case["detail"])["by"]) == ("released", "una")
    judge(home)
    counted = first.lake.query("SELECT count(*) AS n FROM exchanges").to_pylist()
    assert counted == [{"n": 2}], "the one that was held, and its release"
    told = [one.actor for one in first.audit.entries() if one.action.startswith("quarantine.")]
    assert told == ["una"]


def with_a_case(home: Home, policy: Path) -> AppContext:
    """Hold one exchange back, whose answer was cut off."""
    (home.root / "headrace.yaml").write_text(f"policy: {{bundle: {policy}}}\n")
    cut_off(home)
    judge(home)
    return AppContext(home.root, debug=False)


@pytest.mark.parametrize("governed_between", [False, True])
@pytest.mark.parametrize("readable", [True, False])
def test_a_release_that_was_killed_before_it_closed_its_case_is_done_again_once(
    home: Home,
    light_policy: Path,
    monkeypatch: pytest.MonkeyPatch,
    readable: bool,
    governed_between: bool,
) -> None:
    app = with_a_case(home, light_policy)
    if not readable:  # nothing that assembly remembers
        (name,) = quarantine_of(home, app.secrets).names()
        held = quarantine_of(home, app.secrets).read(name)
        assert held is not None
        quarantine_of(home, app.secrets).keep(
            [replace(held, request=replace(held.request, path="/v1/else", body=b"\x00\x01"))]
        )

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(quarantine, "_close", killed)
        with pytest.raises(KeyboardInterrupt):
            quarantine.release(app, quarantine.cases(app), "una")
    if governed_between:
        judge(home)
    app = AppContext(home.root, debug=False)
    oldest = min(quarantine.cases(app), key=lambda one: one["recorded_at"])
    assert len(quarantine.release(app, [oldest], "una")) == 1
    judge(home)
    ledger = AppContext(home.root, debug=False).lake.query("SELECT exchange_id FROM exchanges")
    assert len(ledger["exchange_id"].to_pylist()) == 2, "the one that was held, and its release"


def test_of_a_release_that_was_killed_while_it_wrote_nothing_is_judged(
    home: Home, light_policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = with_a_case(home, light_policy)
    whole = quarantine.write_again

    def torn(writer: SpoolWriter, held: Exchange) -> str:
        append = writer.append_all
        monkeypatch.setattr(writer, "append_all", lambda kept: append([*kept][:-1]))
        whole(writer, held)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(quarantine, "write_again", torn)
        with pytest.raises(KeyboardInterrupt):
            quarantine.release(app, quarantine.cases(app), "una")
    judge(home)
    assert len(quarantine.release(app, quarantine.cases(app), "una")) == 1
    judge(home)
    outcomes = AppContext(home.root, debug=False).lake.query("SELECT outcome FROM exchanges")
    assert outcomes["outcome"].to_pylist() == ["complete"] * 2


def test_a_case_stays_held_where_the_disk_does_not_take_its_release(
    home: Home, light_policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = with_a_case(home, light_policy)

    def refused(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    wrote = quarantine.write_again
    with monkeypatch.context() as patched:

        def written_only(writer: SpoolWriter, held: Exchange) -> str:
            patched.setattr("proxy.spool.disk_sync.os.fdatasync", refused)
            return wrote(writer, held)

        patched.setattr(quarantine, "write_again", written_only)
        with pytest.raises(SpoolUnavailableError, match="sync failed"):
            quarantine.release(app, quarantine.cases(app), "una")
    (case,) = quarantine.cases(app)
    assert case["exchange_id"] in quarantine.content_of(app).names()


@pytest.fixture(scope="module")
def light_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy") / "light"
    shutil.copytree(SHIPPED / "default", folder)
    redaction = folder / "redaction.yaml"
    redaction.write_text(redaction.read_text().replace("model: embedded", "model: null"))
    return folder


def test_quarantine_releases_to_a_new_judgement_and_drops(
    capsys: pytest.CaptureFixture[str], home: Home, light_policy: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "policy"
    shutil.copytree(light_policy, policy)
    (home.root / "headrace.yaml").write_text(f"policy: {{bundle: {policy}}}\n")
    cut_off(home)
    judge(home)
    (case,) = json.loads(done(capsys, "quarantine", "list", "--json")[0])
    assert case["reason"] == "quality:answer-not-cut"
    assert case["content"] == "sealed"
    (file,) = home.held.iterdir()
    assert b"order 0" not in file.read_bytes()
    shown = done(capsys, "quarantine", "show", case["case"])[0]
    assert "order 0" not in shown

    done(capsys, "quarantine", "release", case["case"])
    judge(home)
    (again,) = json.loads(done(capsys, "quarantine", "list", "--json")[0])
    assert again["reason"] == case["reason"], "the policy would hold it, so it is held again"

    quality = policy / "quality.yaml"
    everyone = "role_in_graph: [agent, auxiliary, compaction]"
    quality.write_text(quality.read_text().replace(everyone, "role_in_graph: [compaction]"))
    done(capsys, "quarantine", "release", "--reason", "quality:answer-not-cut")
    judge(home)
    assert json.loads(done(capsys, "quarantine", "list", "--json")[0]) == []
    assert not list(home.held.iterdir())
    lake = Lake.open(str(home.lake))
    counted = lake.query(
        "select disposition, count(*) as n from exchanges group by all"
    ).to_pylist()
    assert {row["disposition"]: row["n"] for row in counted} == {"quarantined": 2, "stored": 1}
    actions = [
        entry.action
        for entry in AuditLog(
            home.audit / "audit.jsonl", load_secrets(home.secrets).derive(b"audit")
        ).entries()
    ]
    assert actions.count("quarantine.released") == 2
    assert actions.count("decisions.made") == 3


@pytest.mark.slow
def test_held_content_goes_by_drop_erasure_and_age(
    capsys: pytest.CaptureFixture[str], home: Home, light_policy: Path
) -> None:
    (home.root / "headrace.yaml").write_text(f"policy: {{bundle: {light_policy}}}\n")
    ways = (
        ("quarantine", "drop", "--reason", "quality:answer-not-cut", "--yes"),
        ("erase", PERSON, "--tenant", "tenant", "--yes"),
    )
    for number, way in enumerate(ways):
        cut_off(home, number)
        judge(home)
        assert len(list(home.held.iterdir())) == 1
        done(capsys, *way)
        assert list(home.held.iterdir()) == []
        assert json.loads(done(capsys, "quarantine", "list", "--json")[0]) == []
    held = quarantine_of(home, load_secrets(home.secrets))
    cut_off(home, 2)
    judge(home)
    assert held.expire(1) == 0
    assert held.expire(1, datetime.now(UTC) + timedelta(days=2)) == 1
    assert json.loads(done(capsys, "quarantine", "list", "--json")[0])[0]["content"] == "gone"


def test_an_erasure_keeps_the_quarantine_of_what_a_legal_hold_is_about(
    capsys: pytest.CaptureFixture[str], home: Home, light_policy: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "policy"
    shutil.copytree(light_policy, policy)
    (home.root / "headrace.yaml").write_text(f"policy: {{bundle: {policy}}}\n")
    cut_off(home)
    judge(home)
    (file,) = home.held.iterdir()
    retention = policy / "retention.yaml"
    lifted = retention.read_text()
    hold = "legal_holds: [{name: case-7, reference: T-7, match: {tenant: tenant, model: m*}}]"
    retention.write_text(lifted.replace("legal_holds: []", hold))
    done(capsys, "erase", PERSON, "--tenant", "tenant", "--yes")
    assert file.exists()
    (case,) = json.loads(done(capsys, "quarantine", "list", "--json")[0])
    assert case["content"] == "sealed"
    entry = json.loads(done(capsys, "audit", "list", "--json")[0])[-1]
    detail = json.loads(entry["detail"])
    assert (entry["action"], detail["held_exchanges_dropped"]) == ("erasure.done", 0)
    assert detail["held_exchanges_under_legal_hold"] == 1
    retention.write_text(
        lifted.replace("legal_holds: []", hold.replace("tenant: tenant", "tenant: x"))
    )
    done(capsys, "erase", PERSON, "--tenant", "tenant", "--yes")
    assert not file.exists()


def test_an_erasure_takes_what_is_held_without_a_case(
    capsys: pytest.CaptureFixture[str], home: Home, light_policy: Path
) -> None:
    """A governor that was killed leaves sealed what the next policy may have stored."""
    (home.root / "headrace.yaml").write_text(f"policy: {{bundle: {light_policy}}}\n")
    cut_off(home)
    judge(home)
    (case,) = home.held.iterdir()
    held = quarantine_of(home, load_secrets(home.secrets))
    left = held.read(case.stem)
    assert left is not None
    others = replace(left.client, tenant_id="other")
    held.keep([replace(left, exchange_id="a" * 32)])
    held.keep([replace(left, exchange_id="b" * 32, client=others)])
    told = json.loads(done(capsys, "erase", PERSON, "--tenant", "tenant", "--yes", "--json")[0])
    assert held.names() == {"b" * 32}
    certificate = json.loads(Path(told["certificate"]).read_text())["statement"]
    assert certificate["held_exchanges_dropped"] == 2
    entries = json.loads(done(capsys, "audit", "list", "--json")[0])
    assert [e["subject"] for e in entries if e["action"] == "quarantine.dropped"][1:] == ["a" * 32]


def test_an_erasure_takes_what_is_kept_of_conversations_at_providers(
    capsys: pytest.CaptureFixture[str], home: Home
) -> None:
    secrets = load_secrets(home.secrets, create=True)
    histories = KeptHistories(home.histories, secrets.derive(b"inline"), seconds=3600)
    owner = HistoryOwner("acme", "k1", "model")
    subject = subject_id(secrets.derive(b"pseudonym"), "acme", PERSON)
    histories.keep(owner, "resp_1", KeptHistory(subjects=("subject_a", subject)))
    histories.keep(owner, "resp_2", KeptHistory(subjects=("subject_a",)))
    told = json.loads(done(capsys, "erase", PERSON, "--tenant", "acme", "--yes", "--json")[0])
    certificate = json.loads(Path(told["certificate"]).read_text())["statement"]
    assert certificate["provider_histories_removed"] == 1
    assert histories.find(owner, "resp_1") is None
    assert histories.find(owner, "resp_2") is not None
    histories.close()


def test_an_erasure_deletes_a_damaged_file_of_histories_and_says_so(
    capsys: pytest.CaptureFixture[str], home: Home
) -> None:
    arguments = ("erase", PERSON, "--tenant", "acme", "--yes", "--json")
    home.histories.write_bytes(b"no database at all, and longer than a header of one" * 100)
    out, err = done(capsys, *arguments)
    assert f"{home.histories} was damaged" in err
    assert not home.histories.exists()
    certificate = json.loads(Path(json.loads(out)["certificate"]).read_text())["statement"]
    assert certificate["provider_histories_removed"] == "all: the file was damaged"


def test_age_leaves_in_quarantine_what_a_legal_hold_is_about(
    home: Home, light_policy: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "policy"
    shutil.copytree(light_policy, policy)
    (home.root / "headrace.yaml").write_text(f"policy: {{bundle: {policy}}}\n")
    cut_off(home)
    judge(home)
    (file,) = home.held.iterdir()
    os.utime(file, (0, 0))
    lifted = (policy / "retention.yaml").read_text()
    hold = "legal_holds: [{name: case-7, reference: T-7, match: {tenant: tenant, model: m*}}]"
    for holds, stays in ((hold, True), (hold.replace("tenant: tenant", "tenant: x"), False)):
        (policy / "retention.yaml").write_text(lifted.replace("legal_holds: []", holds))
        secrets = load_secrets(home.secrets)
        pipeline = build_pipeline(load_settings(home=home.root), home, secrets, print)
        pipeline.tidy(1)
        assert file.exists() == stays


def test_a_withdrawal_counts_after_a_grant_of_a_clock_that_was_ahead(
    capsys: pytest.CaptureFixture[str], home: Home, tmp_path: Path
) -> None:
    ahead = datetime.now(UTC) + timedelta(days=2)
    subject = subject_id(load_secrets(home.secrets, create=True).derive(b"pseudonym"), "acme", "jo")
    row = {
        "tenant_id": "acme", "subject": subject, "purpose": "eval", "granted": True,
        "recorded_at": ahead, "reference": None, "source": "cli",
    }  # fmt: skip
    lake = Lake.open(str(home.lake))
    lake.append_rows("consents", [row])
    done(capsys, "consent", "withdraw", "jo", "--tenant", "acme", "--purpose", "eval")
    entries = lake.consents().entries("acme", [subject])
    assert not max(entries, key=lambda one: one.recorded_at).granted
    lake.append_rows("consents", [row | {"recorded_at": ahead + timedelta(hours=1)}])
    listed = tmp_path / "list.csv"
    listed.write_text("subject,purpose,granted\njo,eval,no\n")
    done(capsys, "consent", "import", str(listed), "--tenant", "acme")
    entries = lake.consents().entries("acme", [subject])
    assert not max(entries, key=lambda one: one.recorded_at).granted


@pytest.mark.parametrize("said", ["* ", "\ufeff*", "\u00a0*"])
def test_blanks_around_everybody_still_mean_everybody(
    capsys: pytest.CaptureFixture[str], home: Home, said: str
) -> None:
    done(capsys, "consent", "withdraw", said, "--tenant", "acme", "--purpose", "eval")
    (entry,) = Lake.open(str(home.lake)).consents().entries("acme", [])
    assert entry.subject == "*"


@pytest.mark.parametrize("also", ["", "_notes", "certificates"])
def test_an_audit_log_that_was_deleted_is_not_intact(
    capsys: pytest.CaptureFixture[str], home: Home, light_policy: Path, also: str
) -> None:
    (home.root / "headrace.yaml").write_text(f"policy: {{bundle: {light_policy}}}\n")
    cut_off(home)
    judge(home)
    done(capsys, "erase", PERSON, "--tenant", "tenant", "--yes")
    done(capsys, "audit", "verify")
    for path in (home.audit / "audit.jsonl", home.audit / "audit.head"):
        path.unlink()
    if also:
        shutil.rmtree(home.lake / "_notes")
    if also == "certificates":
        shutil.rmtree(home.certificates)
    _, said = done(capsys, "audit", "verify", code=3)
    assert "not in the log" in said or "it was deleted" in said
    if not also:
        cut_off(home, 1)
        judge(home)
        assert "had been cut off" in done(capsys, "audit", "verify", code=3)[1]


def test_anchors_outside_show_a_cut(
    capsys: pytest.CaptureFixture[str], home: Home, tmp_path: Path
) -> None:
    file, earlier = tmp_path / "anchors.jsonl", b""
    for purpose in ("eval", "debug"):
        done(capsys, "consent", "grant", "jo", "--tenant", "acme", "--purpose", purpose)
        done(capsys, "audit", "anchor", "--file", str(file))
        earlier = earlier or (home.audit / "audit.head").read_bytes()
    out, _ = done(capsys, "audit", "verify", "--anchors", str(file), "--json")
    assert json.loads(out)["anchors that fit"] == 2
    log = home.audit / "audit.jsonl"
    log.write_text(log.read_text().splitlines(keepends=True)[0])
    assert "entry 2 cut off" in done(capsys, "audit", "verify", code=3)[1]
    (home.audit / "audit.head").unlink()
    assert "audit.head is gone" in done(capsys, "audit", "verify", code=3)[1]
    (home.audit / "audit.head").write_bytes(earlier)
    assert "not in the log" in done(capsys, "audit", "verify", code=3)[1], "what was checked before"
    (home.state / "audit-check.json").unlink()
    done(capsys, "audit", "verify")
    _, err = done(capsys, "audit", "verify", "--anchors", str(file), code=3)
    assert "cut off" in err
    file.write_text(file.read_text().replace('"sequence": 2', '"sequence": 1'))
    assert "does not hold" in done(capsys, "audit", "verify", "--anchors", str(file), code=3)[1]
    done(capsys, "audit", "anchor", code=2)
    _, err = done(capsys, "audit", "anchor", "--url", "http://127.0.0.1:9/", code=3)
    assert "not noted" in err


def test_a_lake_that_lacks_what_was_done_is_told_of_loudly(
    capsys: pytest.CaptureFixture[str], home: Home, light_policy: Path
) -> None:
    (home.root / "headrace.yaml").write_text(f"policy: {{bundle: {light_policy}}}\n")
    cut_off(home)
    judge(home)
    shutil.rmtree(home.lake)
    Lake.open(str(home.lake))
    found = json.loads(done(capsys, "lake", "verify", "--json", code=1)[0])["findings"]
    assert [one["check"] for one in found] == ["batches that were done are in the lake"]
    checks = json.loads(done(capsys, "doctor", "--json", code=1)[0])
    assert [one["status"] for one in checks if one["check"] == "lake"] == ["failure"]
    assert "lacks 1 of the batches" in "".join(done(capsys, "govern", "--once"))
    assert "lake.behind" in done(capsys, "audit", "list", "--json")[0]
    done(capsys, "lake", "verify")  # once it was told, the governor went on from a new beginning
    assert "lacks" not in "".join(done(capsys, "govern", "--once"))


SAVED_ELSEWHERE = f"\ufeff{PERSON}  \r\n\r\nmax@corp-mail.com\r\n"
"""A list as other systems' editors save it."""


def test_lists_are_read_as_editors_and_spreadsheets_save_them(
    capsys: pytest.CaptureFixture[str], home: Home, tmp_path_factory: pytest.TempPathFactory
) -> None:
    people = tmp_path_factory.mktemp("lists") / "people.txt"
    people.write_bytes(SAVED_ELSEWHERE.encode())
    sealed(home, own_key=True)
    report = json.loads(
        done(capsys, "erase", "--file", str(people), "--tenant", "acme", "--yes", "--json")[0]
    )
    assert report["keys_destroyed"] == 1
    (home.root / "left.log").write_text(f"seen: {PERSON}")
    found = json.loads(done(capsys, "audit", "scan", "--file", str(people), "--json", code=1)[0])
    assert (found["values"], found["values_found"]) == (2, 1)
    people.write_bytes("Jörg".encode("utf-16"))
    for command in (["erase", "--tenant", "acme", "--yes"], ["audit", "scan"]):
        assert "not UTF-8" in done(capsys, *command, "--file", str(people), code=2)[1]


@pytest.mark.parametrize("name", ["*", " ", "", "Mueller*"])
def test_nobody_is_erased_by_a_pattern(
    capsys: pytest.CaptureFixture[str], home: Home, name: str
) -> None:
    said = done(capsys, "erase", PERSON, name, "--tenant", "acme", "--yes", code=2)[1]
    assert "Nothing was erased" in said
    assert Lake.open(str(home.lake)).query("SELECT * FROM erasures").num_rows == 0


def test_an_erasure_drops_what_is_held_in_the_persons_own_trajectories_too(
    capsys: pytest.CaptureFixture[str], home: Home
) -> None:
    secrets = load_secrets(home.secrets, create=True)
    person = subject_id(secrets.derive(b"pseudonym"), "acme", PERSON)
    lake, batch = Lake.open(str(home.lake)), make.batch("t1")
    name = f"{1:032x}"
    lake.append(replace(
        batch,
        governance=tuple(replace(one, subjects=(person,)) for one in batch.governance),
        quarantine=(replace(batch.quarantine[0], exchange_id=name, trajectory_id="t1"),),
    ), app_id="a", version=0)  # fmt: skip
    quarantine_of(home, secrets).keep([replace(exchange(1), exchange_id=name)])
    assert len(list(home.held.iterdir())) == 1
    done(capsys, "erase", PERSON, "--tenant", "acme", "--yes")
    assert list(home.held.iterdir()) == []


def test_an_erasure_of_an_unknown_person_says_so(
    capsys: pytest.CaptureFixture[str], home: Home
) -> None:
    out, err = done(capsys, "erase", PERSON, "--tenant", "acme", "--dry-run")
    assert "no data found for this person in tenant 'acme'; check the spelling" in " ".join(
        (out + err).split()
    )


@pytest.mark.parametrize("act", ["grant", "withdraw"])
def test_consent_for_a_tenant_that_the_lake_has_never_seen_is_recorded_and_warned_of(
    capsys: pytest.CaptureFixture[str], home: Home, act: str
) -> None:
    _, err = done(capsys, "consent", act, PERSON, "--tenant", "acmee")
    assert "no call of tenant 'acmee' so far" in " ".join(err.split())
    lake = Lake.open(str(home.lake))
    assert lake.query("SELECT count(*) AS n FROM consents").to_pylist()[0]["n"]
    lake.append(make.batch("t1"), app_id="a", version=1)
    tenant = lake.query("SELECT tenant_id FROM exchanges").to_pylist()[0]["tenant_id"]
    _, err = done(capsys, "consent", act, PERSON, "--tenant", tenant)
    assert "so far" not in err


def test_a_substrate_that_cannot_be_read_does_not_stop_a_withdrawal(
    capsys: pytest.CaptureFixture[str], home: Home
) -> None:
    folder = home.substrates / "shop" / "0001"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    (folder / "items.parquet").write_bytes(b"")
    out, err = done(capsys, "consent", "withdraw", PERSON, "--tenant", "acme", "--json")
    assert json.loads(out)["substrates now stale"] == "none"
    assert "rebuild it with" in " ".join(err.split())
