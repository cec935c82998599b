"""``headrace evolve`` plans, records, explains, and lets a person approve or reject."""

import json
import re
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.evolve_traffic import T0, Traffic, lake_of
from evolve.policy import SHIPPED
from headrace.cli import run
from lakehouse.lake import Lake

CHANGE = 14
DAY = str((T0 + timedelta(days=CHANGE + 2)).date())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    lake_of(str(folder / "lake"), traffic(), CHANGE + 2)
    return folder


def traffic() -> Traffic:
    return Traffic(3, "tool_renamed", CHANGE, sessions=150)


@pytest.fixture
def policy(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HEADRACE_LAKE_PATH", str(world / "lake"))
    monkeypatch.chdir(tmp_path)
    said = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    said["metadata"]["name"] = tmp_path.name.lower().replace("_", "-")[:60]
    said["spec"]["window"] = {"reference_nights": 10, "case_nights": 5}
    path = tmp_path / "evolution.yaml"
    path.write_text(yaml.safe_dump(said), encoding="utf-8")
    return str(path)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert run(["evolve", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_plan_is_shown_and_not_recorded(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = answer(capsys, "history")
    assert run(["evolve", "plan", policy, "--as-of", DAY]) == 0
    shown = capsys.readouterr().out
    assert "tool_schema" in shown
    assert "refund: invalid_arguments: order_id" in shown
    assert "confirmed" in shown
    assert "share of sessions that went right" in shown
    assert "mix of work  as usual (p " in shown
    assert re.search(r"expects .*: at least 0\.\d{3} by 2026-", shown)
    assert answer(capsys, "history") == before


def test_the_same_command_prints_the_same_bytes(
    policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for _ in range(2):
        assert run(["evolve", "plan", policy, "--as-of", DAY, "--json"]) == 0
        found.append(capsys.readouterr().out)
    assert found[0] == found[1]


def test_a_decision_is_recorded_explained_replayed_and_approved(
    policy: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    recorded = answer(capsys, "run", policy, "--as-of", DAY)
    assert answer(capsys, "run", policy, "--as-of", DAY) == recorded, "decided once a night"
    name = recorded["decision_id"]
    explained = answer(capsys, "explain", name[:8])
    assert explained["decision"] == recorded
    assert explained["state"]["status"] == "proposed"
    assert explained["evidence"]["present"]
    assert run(["evolve", "explain", name]) == 0
    assert "unknown field" in capsys.readouterr().out, "what the lake still holds is shown"
    assert answer(capsys, "plan", "--as-of", name) == recorded
    approved = answer(capsys, "approve", name, "--reason", "told the owner")
    assert approved["status"] == "approved"
    rows = [row for row in answer(capsys, "history") if row["decision_id"] == name]
    assert [row["status"] for row in rows] == ["approved"]
    assert run(["evolve", "reject", name]) == 2
    assert "is approved already" in capsys.readouterr().err
    log = (tmp_path / "home" / "audit" / "audit.jsonl").read_text(encoding="utf-8")
    actions = [json.loads(line)["action"] for line in log.splitlines()]
    decided = [action for action in actions if action != "content.read"]
    assert decided == ["evolution.decided", "evolution.approved"]


def test_a_proposal_is_rejected_and_the_audit_log_says_who_and_why(
    policy: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    name = answer(capsys, "run", policy, "--as-of", DAY)["decision_id"]
    rejected = answer(capsys, "reject", name, "--reason", "known")
    assert (rejected["status"], rejected["reason"]) == ("rejected", "known")
    assert rejected["actor"]
    assert answer(capsys, "explain", name)["state"]["reason"] == "known"
    log = (tmp_path / "home" / "audit" / "audit.jsonl").read_text(encoding="utf-8")
    entries = [json.loads(line) for line in log.splitlines()]
    last = [entry for entry in entries if entry["action"] != "content.read"][-1]
    assert (last["action"], last["subject"]) == ("evolution.rejected", name)
    assert last["actor"] == rejected["actor"]


def test_other_rules_are_tried_on_what_a_decision_saw(
    policy: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    recorded = answer(capsys, "run", policy, "--as-of", DAY)
    said = yaml.safe_load(Path(policy).read_text(encoding="utf-8"))
    said["spec"]["rules"] = []
    mine = tmp_path / "mine.yaml"
    mine.write_text(yaml.safe_dump(said), encoding="utf-8")
    tried = answer(capsys, "plan", str(mine), "--as-of", recorded["decision_id"])
    assert tried["decided"]["surface"] == "nothing"
    assert tried["table_versions"] == recorded["table_versions"]
    assert tried["saw"] == recorded["saw"]


def test_who_is_erased_goes_from_the_explanation_and_the_decision_stays(
    policy: str,
    world: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    person = "subject_" + "5e" * 16
    shutil.copytree(world / "lake", tmp_path / "own")
    monkeypatch.setenv("HEADRACE_LAKE_PATH", str(tmp_path / "own"))
    recorded = answer(capsys, "run", policy, "--as-of", DAY)
    name = recorded["decision_id"]
    before = answer(capsys, "explain", name)
    lost = before["evidence"]["present"][0]
    allowed = traffic().nights(CHANGE, CHANGE + 2).governance
    about = next(one for one in allowed if one.trajectory_id == lost)
    later = about.decided_at + timedelta(hours=1)
    known = replace(about, subjects=(person,), decided_at=later)
    Lake.open(str(tmp_path / "own")).append_rows("governance", [known])
    assert run(["erase", person, "--tenant", about.tenant_id, "--yes"]) == 0
    after = answer(capsys, "explain", name)
    assert after["evidence"]["gone"] == [lost]
    assert lost not in after["evidence"]["present"]
    assert after["decision"] == before["decision"]
    assert run(["evolve", "explain", name]) == 0
    assert "erased or expired" in capsys.readouterr().out
    assert run(["evolve", "plan", "--as-of", name]) == 2
    said = capsys.readouterr().err
    assert "An erasure removes what was before it" in said
    assert "{" not in said, "one version, not those of all tables"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "--as-of", "some-day"], "write 2026-05-31"),
        (["plan", "--as-of", "0001-01-01"], "write 2026-05-31"),
        (["plan", "--as-of", "9999-12-31T23:59:59-14:00"], "write 2026-05-31"),
        (["plan", "--as-of", "beefbeef"], "there is no decision"),
        (["explain", "beefbeef"], "evolve history"),
        (["plan", "nowhere.yaml"], "nowhere.yaml: there is no such file; check its path"),
    ],
)
def test_what_cannot_be_found_is_said(
    policy: str, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(["evolve", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_wrong_policy_names_file_line_and_field(
    policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(policy)
    path.write_text(path.read_text().replace("surface: weights", "surface: moon"))
    assert run(["evolve", "plan", policy]) == 2
    found = capsys.readouterr().err
    assert "evolution.yaml:" in found
    assert "surface" in found
    assert run(["policy", "check", policy]) == 2


def test_the_shipped_policy_passes_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "check", str(SHIPPED), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kinds"] == "Evolution"
