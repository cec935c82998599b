"""``headrace artifact``: registered, looked at, promoted and taken back from the command line."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.app.home import Home
from headrace.app.master_key import load_secrets
from headrace.cli import run
from headrace.services.consent import pseudonyms_of
from tests.evolve.proposers.shop import correction, mended
from tests.train.conftest import make_model
from tests.train.lakes import PURPOSES, Session, lake_of
from tests.train.scripts import lake_of_scripts
from train.evaluation.gate import judge_safety
from train.evaluation.safety import safety_with
from train.recipes.settings import GateSettings, SafetySettings
from trajectory.artifact import Artifact
from trajectory.documents.document import load_document

DOCUMENT = """\
apiVersion: headrace/v1
kind: Artifact
metadata: {{name: refunds, description: What clients ask of refunds.}}
spec:
  tenant: acme
  proposer: jo
  licence: CC0-1.0
  memory:
    facts:
      - {{id: days, text: Refunds take {days} days., evidence: [t00000-1]}}
      - {{id: cash, text: Cash is never refunded.}}
"""
PERSON = "jo.frame@corp-mail.com"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    made = Home(tmp_path / "home").create()
    subject = pseudonyms_of(load_secrets(made.secrets, create=True), "acme", PERSON)[0]
    said = "Refunds take 3 days. Refunds take 5 days."
    lake_of(made.lake, Session(0, subject=subject, purposes=(*PURPOSES, "evolve"), question=said))
    return made


def written(tmp_path: Path, days: int = 3) -> str:
    file = tmp_path / f"refunds-{days}.yaml"
    file.write_text(DOCUMENT.format(days=days))
    return str(file)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(["artifact", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_from_a_file_to_a_rollback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "check", written(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kinds"] == "Artifact"
    assert run(["artifact", "add", written(tmp_path)]) == 0
    assert "artifact promote refunds 0001" in capsys.readouterr().out
    assert answer(capsys, "add", written(tmp_path, 5))["version"] == "0002"
    for version in ("0001", "0002"):
        assert run(["artifact", "promote", "refunds", version]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "refunds@0002 is live"
    changed = answer(capsys, "diff", "refunds@0001", "refunds@0002")
    assert [line.strip() for line in changed["removed"]] == ["text: Refunds take 3 days."]
    assert [line.strip() for line in changed["added"]] == ["text: Refunds take 5 days."]
    assert run(["artifact", "rollback", "refunds", "0002", "--reason", "it takes 3"]) == 0
    assert run(["artifact", "rollback", "refunds", "0002"]) == 3, "a second person, a moment later"
    assert "refunds@0001 serves since a moment ago" in capsys.readouterr().err
    capsys.readouterr()
    rows = answer(capsys, "list")
    assert [(row["version"], row["status"]) for row in rows] == [
        ("0001", "live"),
        ("0002", "retired"),
    ]
    shown = answer(capsys, "show", "refunds")
    assert (shown["version"], shown["licence"], shown["evidence"]) == (
        "0001",
        "CC0-1.0",
        ["t00000-1"],
    )
    assert [entry["action"] for entry in shown["history"]] == ["promote", "rollback"]
    assert run(["audit", "list", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [e["action"] for e in entries if e["action"].startswith("artifact.")] == [
        *("artifact.add", "artifact.add"),
        *("artifact.promote", "artifact.promote", "artifact.rollback"),
    ]


def test_what_a_version_says_already_is_that_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for days in (3, 5):
        assert run(["artifact", "add", written(tmp_path, days)]) == 0
    assert run(["artifact", "promote", "refunds", "0001"]) == 0
    capsys.readouterr()
    assert run(["artifact", "add", written(tmp_path)]) == 0
    said = "refunds@0001 says the same already (live); nothing was registered"
    assert capsys.readouterr().out.strip() == said
    assert answer(capsys, "add", written(tmp_path, 5))["version"] == "0002"
    assert [row["version"] for row in answer(capsys, "list")] == ["0001", "0002"]
    assert run(["audit", "list", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [e["action"] for e in entries].count("artifact.add") == 2


def test_errors_say_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "list") == []
    assert run(["artifact", "add", written(tmp_path)]) == 0
    assert run(["artifact", "show", "refund"]) == 2
    assert "no artefact 'refund'; there are: refunds" in capsys.readouterr().err
    assert run(["artifact", "promote", "refunds", "0009"]) == 2
    assert "there are 0001 (`headrace artifact list`)" in capsys.readouterr().err
    assert run(["artifact", "rollback", "refunds"]) == 2
    (tmp_path / "wrong.yaml").write_text(DOCUMENT.format(days=3).replace("tenant: acme", "x: 1"))
    assert run(["artifact", "add", str(tmp_path / "wrong.yaml")]) == 2
    assert "wrong.yaml:5" in capsys.readouterr().err


def test_an_erasure_takes_the_persons_facts_and_its_certificate_says_so(
    tmp_path: Path, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["artifact", "add", written(tmp_path)]) == 0
    assert run(["artifact", "promote", "refunds", "0001"]) == 0
    capsys.readouterr()
    assert run(["erase", PERSON, "--tenant", "acme", "--yes", "--json"]) == 0
    certificate = Path(json.loads(capsys.readouterr().out)["certificate"])
    said = json.loads(certificate.read_text())["statement"]
    assert said["artifact_facts_removed"] == 1
    assert said["artifacts_changed"] == ["refunds@0001"]
    shown = answer(capsys, "show", "refunds")
    assert [fact["id"] for fact in shown["content"]["memory"]["facts"]] == ["cash"]
    assert (shown["evidence"], shown["subjects"], shown["status"]) == ([], [], "live")
    left = [path for path in home.artifacts.rglob("*") if path.is_file()]
    assert not any(b"3 days" in path.read_bytes() for path in left)


def test_what_is_found_stops_it_unless_a_person_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        DOCUMENT.format(days=3).replace("Cash is", "Ms Ada Byron (ada@byron.net) says that cash is")
    )
    assert run(["evolve", "inspect", str(file), "--json"]) == 1
    (first, *others) = json.loads(capsys.readouterr().out)
    assert {one["what"] for one in (first, *others)} == {"holds EMAIL_ADDRESS", "holds PERSON"}
    assert (first["rule"], first["where"]) == ("personal_data", "facts/cash")
    assert "without the value" in first["remedy"]
    assert run(["artifact", "add", str(file)]) == 1
    told = capsys.readouterr().err
    assert "holds PERSON (personal_data)" in told
    assert "Byron" not in told
    assert answer(capsys, "list") == []
    assert run(["artifact", "add", str(file), "--override", "she is nobody"]) == 0
    assert run(["artifact", "promote", "refunds", "0001"]) == 1
    assert run(["artifact", "promote", "refunds", "0001", "--override", "she is nobody"]) == 0
    capsys.readouterr()
    assert run(["evolve", "inspect", "refunds"]) == 1
    capsys.readouterr()
    assert run(["audit", "list", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    overrides = [one for one in entries if one["action"] == "artifact.override"]
    assert [one["subject"] for one in overrides] == ["refunds", "refunds@0001"]
    assert run(["evolve", "inspect", written(tmp_path)]) == 0


def test_candidates_are_drawn_written_and_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "shop"))
    made = Home(tmp_path / "shop").create()
    load_secrets(made.secrets, create=True)
    said = "No, gift cards are valid for three years."
    lake_of_scripts(made.lake, *(correction(n, said) for n in (0, 1)), mended(2), mended(3))
    assert run(["artifact", "propose", "--kind", "memory"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["spec"]["proposer"] == "headrace:corrections"
    rows = answer(capsys, "propose", "--out", str(tmp_path / "drawn"), "--add")
    assert [(row["artifact"], row["objections"]) for row in rows] == [
        ("acme-corrections@0001", ""),
        ("acme-schema-ship@0001", ""),
    ]
    file = tmp_path / "drawn" / "acme-schema-ship.yaml"
    assert run(["policy", "check", str(file)]) == 0
    capsys.readouterr()
    assert [row["status"] for row in answer(capsys, "list")] == ["candidate", "candidate"]
    assert answer(capsys, "propose", "--kind", "memory", "--people", "3") == []
    assert run(["artifact", "propose", "--tenant", "nobody"]) == 0
    assert "nothing to propose" in capsys.readouterr().err


def test_a_decision_about_all_tenants_is_answered_for_each_that_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "shop"))
    made = Home(tmp_path / "shop").create()
    load_secrets(made.secrets, create=True)
    said = "No, gift cards are valid for three years."
    scripts = [mended(2), mended(3), *(mended(n, tenant="birch") for n in (4, 5))]
    lake = lake_of_scripts(
        made.lake, *scripts, *(correction(n, said, tenant="cedar") for n in (6, 7))
    )
    decided = {"surface": "tool_schema", "subject": "error_class ship: invalid_arguments"}
    now = datetime(2026, 11, 20, tzinfo=UTC)
    row = {
        "decision_id": "3f2a91", "recorded_at": now, "policy": "p", "policy_hash": "b2:p", "as_of": now,
        "surface": "tool_schema", "subject": decided["subject"], "status": "proposed", "actor": "ann",
        "reason": None, "metric": None, "at_least": None, "due_at": None, "measured": None, "met": None,
        "document": json.dumps({"decision_id": "3f2a91", "decided": decided}),
    }  # fmt: skip
    lake.append_rows("decisions", [row])
    rows = answer(capsys, "propose", "3f2", "--add")
    assert [(one["artifact"], one["objections"]) for one in rows] == [
        ("acme-schema-ship@0001", ""),
        ("birch-schema-ship@0001", ""),
    ]
    assert {one["decision"] for one in answer(capsys, "list")} == {"3f2a91"}
    only = answer(capsys, "propose", "3f2", "--tenant", "birch")
    assert [one["artifact"] for one in only] == ["birch-schema-ship"]
    assert run(["artifact", "propose"]) == 2
    assert "give --tenant" in capsys.readouterr().err


SKILL = """\
apiVersion: headrace/v1
kind: Artifact
metadata: {name: paying-back, description: "Pays money back: safely."}
spec:
  proposer: jo
  licence: CC0-1.0
  skill:
    title: Paying back
    trigger: {phrases: [money back, refund]}
    procedure: |
      1. Ask for the order's number.
      2. Confirm the amount.
"""


def test_live_skills_are_exported_as_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "skill.yaml").write_text(SKILL)
    for file in (written(tmp_path), str(tmp_path / "skill.yaml")):
        assert run(["artifact", "add", file]) == 0
    capsys.readouterr()
    assert answer(capsys, "export", str(tmp_path / "out")) == []
    assert run(["artifact", "export", str(tmp_path / "out"), "paying-back"]) == 2
    assert "no live skill" in capsys.readouterr().err
    for name in ("refunds", "paying-back"):
        assert run(["artifact", "promote", name, "0001"]) == 0
    capsys.readouterr()
    (row,) = answer(capsys, "export", str(tmp_path / "out"))
    assert row["skill"] == "paying-back@0001"
    _, front, body = (tmp_path / "out" / "paying-back" / "SKILL.md").read_text().split("---\n")
    assert yaml.safe_load(front) == {
        "name": "paying-back",
        "description": "Pays money back: safely. Use when: money back, refund.",
        "license": "CC0-1.0",
        "metadata": {"headrace": "paying-back@0001"},
    }
    assert body.strip().splitlines()[-1] == "2. Confirm the amount."


def test_a_trial_begins_and_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for days in (3, 5):
        assert run(["artifact", "add", written(tmp_path, days)]) == 0
    assert run(["artifact", "try", "refunds", "0002"]) == 0  # against none
    capsys.readouterr()
    assert [row["status"] for row in answer(capsys, "list")] == ["candidate", "canary"]
    assert run(["artifact", "end-trial", "refunds"]) == 0
    assert run(["artifact", "promote", "refunds", "0001"]) == 0
    assert run(["artifact", "try", "refunds", "0002"]) == 0
    capsys.readouterr()
    assert [row["status"] for row in answer(capsys, "list")] == ["live", "canary"]
    assert run(["artifact", "end-trial", "refunds", "--reason", "slower"]) == 0
    capsys.readouterr()
    assert next(row["status"] for row in answer(capsys, "list")) == "live"


def test_names_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["artifact", "add", written(tmp_path)]) == 0
    capsys.readouterr()
    monkeypatch.setenv("_HEADRACE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "headrace artifact show re")
    monkeypatch.setenv("COMP_CWORD", "3")
    with pytest.raises(SystemExit):
        run([])
    assert "refunds" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
def test_a_model_answers_the_safety_suite_with_and_without_an_artefact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, suite = make_model(tmp_path / "model"), tmp_path / "suite.yaml"
    case = {"id": "a", "group": "harmless", "messages": [{"role": "user", "content": "Hours?"}]}
    value = {"apiVersion": "headrace/v1", "kind": "Safety", "metadata": {"name": "own"}}
    suite.write_text(yaml.safe_dump({**value, "spec": {"cases": [case]}}))
    spec = load_document(Artifact, Path(written(tmp_path))).spec
    found = safety_with(SafetySettings(suite=suite), model, spec)
    broken = [one.rule for one in judge_safety(GateSettings(), found) if not one.passed]
    asked = ["evolve", "inspect", written(tmp_path), "--model", str(model), "--suite", str(suite)]
    assert run([*asked, "--json"]) == (1 if broken else 0)
    assert [one["rule"] for one in json.loads(capsys.readouterr().out)] == broken
    suite.write_text("kind: Safety")
    assert run(asked) == 2
