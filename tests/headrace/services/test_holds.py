"""Legal holds: the policy in force decides over what is stored, before a hold and after it."""

import json
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from governance.policy.bundle import SHIPPED
from governance.policy.retention import LegalHold
from governance.records import QuarantineRecord
from governance.redact.pseudonym import subject_id
from headrace.app.home import Home
from headrace.app.master_key import load_secrets, subject_keys_of
from headrace.app.setting_sources import load_settings
from headrace.cli import run
from headrace.services.holds import held_now, holds_in
from lakehouse.lake import Lake
from tests.lakehouse import make
from tests.lakehouse.erasure.test_erase import about

RETENTION = """apiVersion: headrace/v1
kind: Retention
metadata: {name: holds}
spec:
  classes: {standard: 365}
  default: standard
  legal_holds: %s
"""
_CASE = "SELECT 1 FROM quarantine WHERE quarantine_id = 'q7'"
HOLD = '[{name: case-7, match: {tenant: %s, app: "*"}, reference: "AZ 7/26"}]'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    policy = tmp_path / "policy"
    policy.mkdir()
    for file in (SHIPPED / "default").glob("*.yaml"):
        (policy / file.name).write_text(file.read_text())
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    monkeypatch.setenv("HEADRACE_POLICY_BUNDLE", str(policy))
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    load_secrets(tmp_path / "secrets", create=True)
    lake = Lake.open(str(tmp_path / "lake"))
    past = make.NOON - timedelta(days=1000)
    lake.append(about("t0", "p0", expires_at=past), app_id="a", version=0)
    stamped = about("t1", "p1", expires_at=past, legal_hold=True)
    lake.append(stamped, app_id="a", version=1)
    return tmp_path


def hold(home: Path, holds: str) -> None:
    (home / "policy" / "retention.yaml").write_text(RETENTION % holds)


def expire(capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    assert run(["lake", "expire", "--json"]) == 0
    said: dict[str, int] = json.loads(capsys.readouterr().out)
    return said


def test_a_hold_keeps_what_was_stored_before_it_and_is_noted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hold(home, HOLD % "acme")
    said = expire(capsys)
    assert (said["trajectories"], said["under legal hold"]) == (0, 2)
    assert run(["audit", "list", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    (swept,) = [one for one in entries if one["action"] == "retention.swept"]
    assert json.loads(swept["detail"])["held"] == 2
    assert run(["lake", "maintain", "--json"]) == 0
    assert Lake.open(str(home / "lake")).query("SELECT 1 FROM steps").num_rows == 4


def test_a_hold_that_was_lifted_keeps_nothing_and_others_tenants_are_not_held(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hold(home, HOLD % "globex")
    assert expire(capsys)["trajectories"] == 2
    assert Lake.open(str(home / "lake")).query("SELECT 1 FROM steps").num_rows == 0


def test_a_hold_keeps_the_case_of_a_call_that_is_held_back(home: Path) -> None:
    """Nothing else of its conversation is stored; without its case nobody could release it."""
    lake = Lake.open(str(home / "lake"))
    whole = about(
        "t7",
        "subject_" + "7" * 32,
        expires_at=make.NOON - timedelta(days=1000),
        decision="quarantine",
    )
    line, one = whole.exchanges[0], whole.governance[0]
    case = QuarantineRecord(
        "acme", "q7", line.exchange_id, "t7", one.step_id, line.started_at, line.started_at,
        "redact", "error:TimeoutError", "{}", one.policy_hash,
    )  # fmt: skip
    ledger = (replace(line, disposition="quarantined"),)
    batch = replace(make.batch("t8", steps=0), exchanges=ledger, governance=(one,))
    lake.append(replace(batch, quarantine=(case,)), app_id="a", version=7)

    def is_there() -> bool:
        return bool(Lake.open(str(home / "lake")).query(_CASE).num_rows)

    hold(home, f'[{{name: c, match: {{app: {line.app_id}, model: m-*}}, reference: "7"}}]')
    assert run(["erase", "--tenant", "acme", "--yes", "--json", "subject_" + "7" * 32]) == 0
    assert run(["lake", "expire", "--json"]) == 0
    assert is_there(), "a model that nobody knows yet fits"
    hold(home, '[{name: c, match: {app: nosuch}, reference: "7"}]')
    assert run(["lake", "expire", "--json"]) == 0
    assert not is_there()


def test_what_rows_do_not_tell_counts_as_fitting(home: Path) -> None:
    lake = Lake.open(str(home / "lake"))

    def held(**match: str) -> set[str]:
        hold = LegalHold.model_validate({"name": "h", "match": match, "reference": "r"})
        return held_now(lake.query, [hold], "acme", ["t0", "t1"])

    assert held(tenant="acme") == {"t0", "t1"}
    assert held(region="eu-*") == {"t0", "t1"}
    assert held(tenant="acme", agent="x", app="nosuch") == set()
    assert held(data_class="health") == set()
    assert held(tenant="globex") == set()


def test_what_has_no_trajectory_is_held_by_every_hold_of_its_tenant(home: Path) -> None:
    lake = Lake.open(str(home / "lake"))

    def held(**match: str) -> bool:
        hold = LegalHold.model_validate({"name": "h", "match": match, "reference": "r"})
        return "" in held_now(lake.query, [hold], "acme", ["", "t0"])

    assert held(tenant="acme")
    assert held(tenant="acme", app="nosuch")
    assert held(app="nosuch"), "feedback may be of any application"
    assert not held(tenant="globex")


def test_a_hold_on_one_person_keeps_nobody_elses_key(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hold(home, HOLD.replace('app: "*"', "app: held") % "acme")
    secrets, lake = load_secrets(home / "secrets"), Lake.open(str(home / "lake"))
    keys, names = subject_keys_of(Home(home), secrets), ("Sarah Miller", "Thomas Becker")
    people = [subject_id(secrets.derive(b"pseudonym"), "acme", name) for name in names]
    for number, person in enumerate(people):
        keys.key(person)
        app = "shop" if number == 0 else "held"
        whole = about(f"t{number + 5}", person)
        steps = tuple(replace(one, app_id=app) for one in whole.steps)
        lake.append(replace(whole, steps=steps), app_id="a", version=number + 5)
    assert run(["erase", "--tenant", "acme", "--yes", "--json", *names]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["keys_destroyed"], said["held"]) == (1, 1)
    left = subject_keys_of(Home(home), secrets)
    assert [left.known(person) is None for person in people] == [True, False]
    stated = json.loads(Path(said["certificate"]).read_text())["statement"]
    assert people[1] in stated["subjects_under_legal_hold"]
    assert people[0] not in stated["subjects_under_legal_hold"]


def test_a_policy_that_is_being_written_is_waited_for(home: Path) -> None:
    """Its first half is valid, and has half the holds."""
    names = ("a", "b")
    holds = [f'{{name: {one}, match: {{tenant: {one}}}, reference: "1"}}' for one in names]
    whole = RETENTION % "".join(f"\n    - {one}" for one in holds)
    file = home / "policy" / "retention.yaml"
    file.write_text(whole[: whole.index("    - {name: b")])
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        with file.open("a") as rest:
            if len(waits) == 1:
                rest.write(whole[whole.index("    - {name: b") :])
        time.sleep(seconds)

    settings = load_settings(home=home)
    assert [one.name for one in holds_in(settings, wait)] == ["a", "b"]
    assert waits
    waits.clear()
    assert [one.name for one in holds_in(settings, wait)] == ["a", "b"]
    assert waits == []
