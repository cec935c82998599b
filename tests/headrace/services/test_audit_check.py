"""The check of the audit log: what is new at each look, all of it when asked, and what was found is kept."""

import time
from pathlib import Path

import pytest

from headrace.app.context import AppContext
from headrace.cli import run
from headrace.services.audit_check import CheckStore, check_new, check_whole, verified_log
from proxy.telemetry.admin import audit_gauges
from trajectory.errors import IntegrityError


@pytest.fixture
def app(tmp_path: Path) -> AppContext:
    made = AppContext(tmp_path / "home", debug=False)
    made.home.create()
    append(made, 4)
    return made


def append(app: AppContext, count: int) -> None:
    for number in range(count):
        app.audit.append(actor="ida", action="x", subject=f"b2:{number}")


def change(app: AppContext, before: bytes, after: bytes) -> None:
    path = app.home.audit / "audit.jsonl"
    assert before in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(before, after, 1))


def test_a_look_goes_on_where_the_last_one_ended(app: AppContext) -> None:
    first = check_new(app)
    assert (first.place.head.sequence, first.at) == (4, first.whole_at)
    append(app, 2)
    second = check_new(app)
    assert second.place.head == app.audit.head()
    assert second.whole_at == first.whole_at < second.at
    change(app, b'"b2:1"', b'"b2:8"')
    assert check_new(app).problem is None, "it reads what is new alone"
    whole = check_whole(app)
    assert "audit.jsonl:2" in str(whole.problem)
    assert check_new(app) == whole, "it is told until the whole log was found intact"
    change(app, b'"b2:8"', b'"b2:1"')
    assert check_new(app) == whole
    assert verified_log(app) == app.audit.head()
    assert check_new(app).problem is None


def test_what_is_wrong_with_new_entries_is_found_at_a_look(app: AppContext) -> None:
    check_new(app)
    append(app, 1)
    change(app, b'"sequence": 5', b'"sequence": 6')
    problem = check_new(app).problem
    assert "audit.jsonl:5" in str(problem)
    change(app, b'"sequence": 6', b'"sequence": 5')
    assert check_new(app).problem == problem


def test_who_takes_log_and_head_back_to_an_earlier_day_is_noticed(app: AppContext) -> None:
    files = ("audit.jsonl", "audit.head")
    earlier = [(app.home.audit / name).read_bytes() for name in files]
    append(app, 1)
    check_new(app)
    for name, data in zip(files, earlier, strict=True):
        (app.home.audit / name).write_bytes(data)
    assert "was verified earlier" in str(check_new(app).problem)
    with pytest.raises(IntegrityError, match="entry 5"):
        verified_log(app)


def test_a_check_that_nobody_with_the_key_kept_says_nothing(app: AppContext) -> None:
    check_new(app)
    kept = app.home.state / "audit-check.json"
    kept.write_bytes(kept.read_bytes().replace(b'"sequence": 4', b'"sequence": 3'))
    change(app, b'"b2:1"', b'"b2:8"')
    assert "audit.jsonl:2" in str(check_new(app).problem)


def test_the_command_verifies_the_whole_and_the_look_knows(app: AppContext) -> None:
    check_new(app)
    change(app, b'"b2:1"', b'"b2:8"')
    assert run(["--home", str(app.home.root), "audit", "verify"]) == 3
    assert "audit.jsonl:2" in str(check_new(app).problem)


def test_a_log_with_a_problem_is_verified_again_after_a_day_and_told_of_in_metrics(
    app: AppContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert audit_gauges(app.home.state) == {}
    checks = CheckStore(app.home, app.secrets)
    assert checks.is_whole_due()
    check_whole(app)
    change(app, b'"b2:1"', b'"b2:8"')
    found = check_whole(app)
    shown = audit_gauges(app.home.state)
    assert (shown["audit_intact"], shown.keys()) == (
        0.0, {"audit_intact", "audit_whole_check_seconds"}
    )  # fmt: skip
    assert not checks.is_whole_due()
    monkeypatch.setattr(time, "time", lambda: found.at + 86_401)
    assert checks.is_whole_due()
    monkeypatch.setattr(time, "time", lambda: found.at - 5)
    assert checks.is_whole_due(), "a clock that was set back hides nothing"
