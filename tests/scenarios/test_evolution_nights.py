"""A night answers its decision with an artefact on trial, and once, also after a kill in between."""

import json
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.evolve_traffic import Traffic, lake_of
from evolve.policy import SHIPPED
from headrace.cli import run
from headrace.processes.supervisor import headrace_command
from tests.evolve.proposers.shop import correction
from tests.headrace.nights import written
from tests.train.lakes import START
from tests.train.scripts import lake_of_scripts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CHANGE, NIGHTS = 14, 17
ROUTE = {"name": "model", "upstream": "http://127.0.0.1:9", "evolve": {"artifacts": ["birch-corrections"]}}  # fmt: skip


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the schedule of a shop one of whose tenants lacks a fact that its people then say."""
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    today = START.replace(hour=0)
    traffic = Traffic(3, "fact_missing", CHANGE, begin=today - timedelta(days=NIGHTS))
    lake_of(str(tmp_path / "lake"), traffic, NIGHTS)
    said = "No, gift cards are valid for three years."
    lake_of_scripts(tmp_path / "lake", *(correction(n, said, tenant="birch") for n in (0, 1)))
    policy = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    policy["spec"]["window"] = {"reference_nights": 10, "case_nights": 5}
    (tmp_path / "evolution.yaml").write_text(yaml.safe_dump(policy))
    (tmp_path / "headrace.yaml").write_text(yaml.safe_dump({"gateway": {"routes": [ROUTE]}}))
    substrate = {"purposes": ["train_sft"], "reward": {"signals": {"success": 1.0}}}
    written(tmp_path, "Substrate", "all", substrate)
    spec = {
        "cron": "0 2 * * *", "evolution": "evolution.yaml", "substrate": "all.yaml", "model": "shop",
        "promote": "ladder",
    }  # fmt: skip
    return written(tmp_path, "Schedule", "nightly", spec)


def told(*arguments: str) -> Any:
    done = subprocess.run(headrace_command([*arguments, "--json"]), capture_output=True, check=True)
    return json.loads(done.stdout)


def test_a_day_is_for_a_night_now_that_decides(
    night: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = START.date() - timedelta(days=3)
    found = told("schedule", "run", night, "--as-of", str(before))
    assert found["outcome"] == "nothing", "the change began on that day"
    assert run(["schedule", "run", night, "--as-of", str(before), "--if-due"]) == 2
    assert "--as-of is for a night now" in capsys.readouterr().err
    assert [row["as_of"][:10] for row in told("evolve", "history")] == [str(before)]


def test_a_tenant_that_lacks_a_fact_gets_it_on_trial(night: str, tmp_path: Path) -> None:
    found = told("schedule", "run", night)
    assert (found["outcome"], found["artifacts"]) == ("proposed", ["birch-corrections@0001"])
    assert "memory (one tenant's sessions fail)" in found["reasons"][0]
    assert found["reasons"][1] == "birch-corrections@0001 is on trial"
    entries = told("audit", "list", "--limit", "100")
    assert {"evolution.decided", "artifact.add", "trial.begun"} <= {
        one["action"] for one in entries
    }
    assert {one["actor"] for one in entries} == {"headrace:schedule"}, "no person did anything"
    assert {one["actor"] for one in told("sql", "select actor from decisions")} == {
        "headrace:schedule"
    }
    (decision,) = told("evolve", "history")
    trial = told("trial", "show", "birch-corrections@0001")
    assert (trial["decision"], trial["routes"]) == (decision["decision_id"], ["model"])
    (fact,) = told("artifact", "show", "birch-corrections")["content"]["memory"]["facts"]
    assert fact["text"] == "Gift cards are valid for three years."
    assert told("schedule", "run", night)["outcome"] == "nothing"
    assert len(told("artifact", "list")) == 1
    (last,) = told("schedule", "history", "nightly")[:1]
    assert last["artifacts"] == "birch-corrections@0001"


def test_what_a_night_registered_before_it_was_killed_goes_on_trial_once(
    night: str, tmp_path: Path
) -> None:
    decision = told("evolve", "run", str(tmp_path / "evolution.yaml"))["decision_id"]
    (drawn,) = told("artifact", "propose", decision, "--add")
    assert (drawn["artifact"], told("trial", "list")) == ("birch-corrections@0001", [])
    found = told("schedule", "run", night)
    assert (found["outcome"], found["artifacts"]) == ("proposed", ["birch-corrections@0001"])
    assert told("schedule", "run", night)["outcome"] == "nothing"
    assert len(told("artifact", "list")) == len(told("trial", "list")) == 1


def test_an_artefact_on_no_route_is_registered_and_says_where_to_name_it(
    night: str, tmp_path: Path
) -> None:
    (tmp_path / "headrace.yaml").unlink()
    found = told("schedule", "run", night)
    assert (found["outcome"], found["artifacts"]) == ("proposed", ["birch-corrections@0001"])
    assert "no route gives 'birch-corrections' to agents" in found["reasons"][1]
    assert run(["trial", "show", "birch-corrections"]) == 2
