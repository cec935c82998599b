"""The governing process takes a changed policy, keeps the old one when the new one is broken."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from governance.audit import AuditLog
from governance.policy import PolicyError, load_bundle
from governance.policy.bundle import SHIPPED
from headrace.app.doctor import examine
from headrace.app.home import Home
from headrace.app.master_key import load_secrets, subject_keys_of
from headrace.app.setting_sources import load_settings
from headrace.app.settings import PolicySettings
from headrace.govern.worker import GovernorSource, govern_until_stopped
from headrace.services.audit_check import CheckStore
from lakehouse.lake import Lake
from lakehouse.storage.location import Location
from lakehouse.write.stored_content import LakeKnownContent
from proxy.telemetry.admin import audit_gauges
from tests.headrace.pipelines import pipeline, refuse
from trajectory.errors import ConfigurationError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "policy"
    shutil.copytree(SHIPPED / "default", folder)
    file = folder / "redaction.yaml"
    file.write_text(file.read_text().replace("model: embedded", "model: null"))
    return folder


class ChangingLake(Lake):
    """A lake to which something happens while a governor is built on it."""

    def __init__(self, location: Location) -> None:
        super().__init__(location)
        self.meanwhile: list[Callable[[], object]] = []

    def known_content(self) -> LakeKnownContent:
        while self.meanwhile:
            self.meanwhile.pop()()
        return super().known_content()


def source(
    tmp_path: Path, folder: Path, said: list[str], lake: Lake | None = None
) -> GovernorSource:
    home = Home(tmp_path / "home").create()
    secrets = load_secrets(home.secrets, create=True)
    return GovernorSource(
        folder,
        lake or Lake.open(str(home.lake)),
        secrets,
        AuditLog(home.audit / "audit.jsonl", secrets.derive(b"audit")),
        said.append,
        home=home,
        subject_keys=subject_keys_of(home, secrets),
    )


def test_a_policy_that_is_still_being_written_is_never_in_force(
    tmp_path: Path, folder: Path
) -> None:
    """The part of a file that stands there may be a whole policy without its last limits."""
    said: list[str] = []
    lake = ChangingLake.open(str(tmp_path / "lake"))
    assert isinstance(lake, ChangingLake)
    consent = folder / "consent.yaml"
    part = consent.read_text()
    whole = f"{part}  subject_grant_required: [evolve]\n"
    consent.write_text(part)
    lake.meanwhile.append(lambda: consent.write_text(whole))  # while the first is built
    governors = source(tmp_path, folder, said, lake)
    first = governors()
    consent.write_text("# new\n" + part)
    lake.meanwhile.append(lambda: consent.write_text("# new\n" + whole))
    assert governors() is first
    assert governors() is not first
    log = AuditLog(tmp_path / "home" / "audit" / "audit.jsonl", b"")
    in_force = [entry.subject for entry in log.entries() if entry.action == "policy.in_force"]
    assert in_force == [load_bundle(folder).content_hash]


def test_a_policy_that_comes_with_the_old_time_and_size_is_seen(
    tmp_path: Path, folder: Path
) -> None:
    governors = source(tmp_path, folder, [])
    first = governors()
    file = folder / "retention.yaml"
    before = file.stat()
    other = tmp_path / "retention.yaml"
    other.write_text(file.read_text().replace("standard: 365", "standard: 364"))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)
    assert (file.stat().st_mtime_ns, file.stat().st_size) == (before.st_mtime_ns, before.st_size)
    assert governors() is not first


def test_a_changed_bundle_is_taken_and_a_broken_one_is_not(tmp_path: Path, folder: Path) -> None:
    said: list[str] = []
    governors = source(tmp_path, folder, said)
    first = governors()
    assert governors() is first
    retention = folder / "retention.yaml"
    good = retention.read_text()
    retention.write_text(good.replace("default: standard", "default: nosuch"))
    assert governors() is first
    assert said[-1].startswith("the changed policy is not in force, the old one stays:")
    assert "retention.yaml:6" in said[-1]
    redaction = folder / "redaction.yaml"
    before = redaction.read_text()
    retention.write_text(good)
    redaction.write_text(before.rstrip() + "\n  recognizers: [nosuch-recognizers.yaml]\n")
    assert governors() is first
    assert "the old one stays" in said[-1]
    redaction.write_text(before)
    retention.write_text(good.replace("standard: 365", "standard: 99"))
    second = governors()
    assert second is not first
    assert said[-1] == "the changed policy is in force"
    log = (tmp_path / "home" / "audit" / "audit.jsonl").read_text()
    assert log.count("policy.in_force") == 2


def _nothing_left(folder: Path) -> None:
    shutil.rmtree(folder)


def _expectation_without_bounds(folder: Path) -> None:
    file = folder / "quality.yaml"
    odd = "expectation: expect_column_values_to_be_between, column: leftover_findings"
    file.write_text(
        file.read_text().replace(
            "  expectations:\n", f"  expectations:\n    - {{name: e, {odd}}}\n", 1
        )
    )


def _recogniser_that_is_no_pattern(folder: Path) -> None:
    patterns = "[{name: a, regex: '(', score: 0.9}]"
    (folder / "ours.yaml").write_text(
        "recognizers:\n  - {name: a, supported_language: en, supported_entity: A, "
        f"patterns: {patterns}}}\n"
    )
    file = folder / "redaction.yaml"
    file.write_text(file.read_text().rstrip() + "\n  recognizers: [ours.yaml]\n")


def _no_text(folder: Path) -> None:
    (folder / "capture.yaml").write_bytes(b"\xff\xfe\x00")


def test_a_changed_policy_is_in_force_as_soon_as_the_disk_takes_it(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    governors = source(tmp_path, folder, said)
    first = governors()
    retention = folder / "retention.yaml"
    retention.write_text(retention.read_text().replace("standard: 365", "standard: 99"))
    refuse(monkeypatch, AuditLog, "append", [True, True])
    assert governors() is governors() is first
    assert said == ["the changed policy waits, the old one governs: the disk is full"]
    assert governors() is not first
    assert said[1:] == ["the changed policy is in force"]


@pytest.mark.parametrize(
    "broken",
    [_nothing_left, _expectation_without_bounds, _recogniser_that_is_no_pattern, _no_text],
)
def test_whatever_is_wrong_with_a_changed_policy_the_old_one_stays(
    tmp_path: Path, folder: Path, broken: Callable[[Path], None]
) -> None:
    said: list[str] = []
    governors = source(tmp_path, folder, said)
    shutil.copytree(folder, tmp_path / "good")
    first = governors()
    broken(folder)
    assert governors() is first
    assert governors() is first
    assert len(said) == 1
    assert said[0].startswith("the changed policy is not in force, the old one stays: ")
    home = Home(tmp_path / "home")
    audit = AuditLog(home.audit / "audit.jsonl", load_secrets(home.secrets).derive(b"audit"))
    assert [entry.action for entry in audit.entries()] == ["policy.in_force", "policy.refused"]
    settings = load_settings(home=home.root).model_copy(
        update={"policy": PolicySettings(bundle=str(tmp_path / "good"))}
    )
    (finding,) = [one for one in examine(settings, home) if one.check == "policy in force"]
    assert finding.status == "warning"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(tmp_path / "good", folder)
    assert governors() is not first
    assert said[-1] == "the changed policy is in force"
    assert not [one for one in examine(settings, home) if one.check == "policy in force"]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("redaction.yaml", "model: null", "model: no_such_model"),
        ("redaction.yaml", "entities: {}", "entities: {NO_SUCH_ENTITY: mask}"),
        ("dedup.yaml", "kind: Dedup", "kind: Evolution"),
    ],
)
def test_what_was_asked_for_and_cannot_load_stops_the_start(
    tmp_path: Path, folder: Path, name: str, old: str, new: str
) -> None:
    file = folder / name
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises((ConfigurationError, PolicyError)):
        source(tmp_path, folder, [])


@pytest.mark.parametrize("leapt", [True, False])
def test_what_a_clock_that_leapt_calls_old_stays_in_quarantine(
    tmp_path: Path, *, leapt: bool
) -> None:
    home = Home(tmp_path).create()
    (tmp_path / "headrace.yaml").write_text(
        "govern: {maintenance_seconds: 0.01, interval_seconds: 0.05}\n"
    )
    if leapt:
        (home.state / "swept-at").write_text("2001-09-09T01:46:40+00:00")
    old = tmp_path / "quarantine" / f"{'a' * 32}.sealed"
    old.parent.mkdir(exist_ok=True)
    old.write_bytes(b"sealed under another key")
    os.utime(old, (0, 0))
    governed_until(tmp_path, (home.logs / "lake-maintain.log").exists)
    assert old.exists() == leapt


def governed_until(home: Path, done: Callable[[], bool]) -> None:
    """Govern, as the command does, until something is done; fail where it is not within a minute."""
    work, secrets = pipeline(home), load_secrets(home / "secrets", create=True)

    def stop() -> None:
        deadline = time.monotonic() + 60
        while not done() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    Thread(target=stop).start()
    try:
        govern_until_stopped(work, load_settings(home=home), secrets, print)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert done()


def test_the_whole_audit_log_is_verified_once_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path).create()
    (tmp_path / "headrace.yaml").write_text(
        "govern: {maintenance_seconds: 0.01, interval_seconds: 0.05}\n"
    )
    checks = CheckStore(home, load_secrets(home.secrets, create=True))
    assert checks.is_whole_due()
    governed_until(tmp_path, lambda: not checks.is_whole_due())
    (check, begun) = checks.load(), (home.logs / "audit-verify.log").stat().st_mtime_ns
    assert check is not None
    assert (check.problem, check.whole_at) == (None, check.at)
    shown = audit_gauges(home.state)
    assert (shown["audit_intact"], shown["audit_whole_check_seconds"] < 600) == (1.0, True)
    (home.logs / "lake-maintain.log").unlink()
    governed_until(tmp_path, (home.logs / "lake-maintain.log").exists)
    assert (home.logs / "audit-verify.log").stat().st_mtime_ns == begun, "not twice a day"
    monkeypatch.setattr(time, "time", lambda: check.at + 86_401)
    assert checks.is_whole_due()
