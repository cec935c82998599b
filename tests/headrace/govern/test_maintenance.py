"""Maintenance beside the governing process: what is due is done, by itself, and a kill does no harm."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from governance.audit import AuditLog
from governance.records import GovernedBatch
from headrace.app.context import AppContext
from headrace.app.home import Home
from headrace.app.settings import LakeSettings
from headrace.govern.maintenance import MAINTAIN, BackgroundCommand, maintain_home
from lakehouse.lake import Lake
from lakehouse.maintenance.verify import verify
from tests.lakehouse import make
from tests.lakehouse.erasure.test_erase import on_remark, remark

SETTINGS = LakeSettings(sweep_hours=1)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path).create()


@pytest.fixture
def audit(home: Home) -> AuditLog:
    return AuditLog(home.audit / "audit.jsonl", b"a" * 32)


def filled(home: Home, batches: int = 17) -> Lake:
    """Return a lake with enough small files to be compacted; the first trajectory has expired."""
    lake = Lake.open(str(home.lake))
    for number in range(batches):
        whole = make.batch(f"t{number}", steps=1)
        if number == 0:
            ended = [make.governed(one, expires_at=make.NOON) for one in whole.steps]
            whole = replace(whole, governance=tuple(ended))
        lake.append(whole, app_id="a", version=number)
    return lake


def test_a_round_does_all_that_is_due(home: Home, audit: AuditLog) -> None:
    lake = filled(home)
    done = maintain_home(lake, SETTINGS, home, audit, actor="ann")
    assert done.sweep is not None
    assert done.sweep.reach.trajectories == ("t0",)
    files = {table.table: table.files_after for table in done.tables}
    assert files["steps"] == files["exchanges"] == 1
    assert [(one.actor, one.action) for one in audit.entries()] == [("ann", "retention.swept")]
    assert verify(lake).ok


@pytest.mark.parametrize(
    "torn", ["", "2026-11", "2026-11-23", "2026-11-23T18:11", "\x00" * 32, "\xff"]
)
def test_a_torn_note_of_the_last_sweep_means_that_it_is_due(
    home: Home, audit: AuditLog, torn: str
) -> None:
    (home.state / "swept-at").write_text(torn, "latin-1")
    assert (
        maintain_home(filled(home, batches=1), SETTINGS, home, audit, actor="ann").sweep is not None
    )


def test_the_sweep_waits_for_its_hour(home: Home, audit: AuditLog) -> None:
    lake = filled(home, batches=1)
    recent = datetime.now(UTC) - timedelta(minutes=30)
    (home.state / "swept-at").write_text(recent.isoformat())
    assert maintain_home(lake, SETTINGS, home, audit, actor="ann").sweep is None
    (home.state / "swept-at").write_text((recent - timedelta(hours=1)).isoformat())
    assert maintain_home(lake, SETTINGS, home, audit, actor="ann").sweep is not None
    assert maintain_home(lake, SETTINGS, home, audit, actor="ann").sweep is None


def test_a_clock_that_was_set_back_delays_no_sweep(home: Home, audit: AuditLog) -> None:
    lake = filled(home, batches=1)
    (home.state / "swept-at").write_text((datetime.now(UTC) + timedelta(days=900)).isoformat())
    assert maintain_home(lake, SETTINGS, home, audit, actor="ann").sweep is not None


def test_a_clock_that_leapt_removes_nothing_until_it_has_gone_on_for_a_day(
    home: Home, audit: AuditLog
) -> None:
    lake, note, leapt = (
        filled(home, batches=1),
        home.state / "swept-at",
        home.state / "clock-leapt-at",
    )
    note.write_text((datetime.now(UTC) - timedelta(days=4000)).isoformat())
    for _ in range(2):
        done = maintain_home(lake, SETTINGS, home, audit, actor="ann")
        assert (done.sweep, done.leap and done.leap.days) == (None, 4000)
    leapt.write_text((datetime.now(UTC) - timedelta(days=1)).isoformat())
    assert maintain_home(lake, SETTINGS, home, audit, actor="ann").sweep is not None
    assert not leapt.exists()


def test_a_clock_that_came_back_is_believed(home: Home, audit: AuditLog) -> None:
    lake = filled(home, batches=1)
    (home.state / "swept-at").write_text((datetime.now(UTC) - timedelta(days=2)).isoformat())
    (home.state / "clock-leapt-at").write_text(datetime.now(UTC).isoformat())
    assert maintain_home(lake, SETTINGS, home, audit, actor="ann").sweep is not None
    assert not (home.state / "clock-leapt-at").exists()


def test_nothing_expired_leaves_history_and_audit_alone(home: Home, audit: AuditLog) -> None:
    lake = Lake.open(str(home.lake))
    lake.append(make.batch("t"), app_id="a", version=0)
    versions = lake.versions()
    assert maintain_home(lake, SETTINGS, home, audit, actor="ann").sweep is None
    assert lake.versions() == versions
    assert list(audit.entries()) == []


def test_what_no_trajectory_takes_with_it_is_swept_too(home: Home, audit: AuditLog) -> None:
    lake = Lake.open(str(home.lake))
    past = make.NOON - timedelta(days=1000)
    rows = GovernedBatch(
        signals=(remark("on-group", "group", "g-none"),),
        governance=(on_remark("on-group", 0, expires_at=past),),
    )
    lake.append(rows, app_id="a", version=0)
    done = maintain_home(lake, SETTINGS, home, audit, actor="ann").sweep
    assert done is not None
    assert (done.alone, done.rows) == (1, {"signals": 1, "governance": 1})
    assert maintain_home(lake, SETTINGS, home, audit, actor="ann").sweep is None


def test_it_runs_beside_its_owner(home: Home) -> None:
    """The process is started when due, does its round while batches go on, and is not doubled."""
    lake = filled(home)
    said: list[str] = []
    maintenance = BackgroundCommand(home, MAINTAIN, 0.0, said.append)
    assert maintenance.look()
    number = 17
    deadline = time.monotonic() + 100
    while not maintenance.look():  # the first round goes on
        assert time.monotonic() < deadline, (home.logs / "lake-maintain.log").read_text()
        lake.append(make.batch(f"t{number}", steps=1), app_id="a", version=number)
        number += 1
        time.sleep(0.2)  # without a pause the two share one processor for long
    assert lake.query("SELECT count(*) AS n FROM steps")["n"].to_pylist() == [number - 1]
    assert verify(lake).ok
    (entry,) = AppContext(home.root, debug=False).audit.entries()
    assert (entry.actor, entry.action) == ("headrace:governor", "retention.swept")
    maintenance.stop()
    assert not said
