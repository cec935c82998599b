"""Whoever reads at the command line what people or agents said, the audit log knows of it."""

import json
from pathlib import Path

import pytest

from headrace.app.context import AppContext
from headrace.cli import run
from headrace.console.users import system_user
from tests.documentation.test_docs import commands
from tests.train.lakes import Session, lake_of

SHOW_CONTENT = {
    "sql", "reveal", "trajectory show", "trajectory export", "trajectory replay", "harness show",
    "harness diff", "approvals show", "evolve explain", "evolve inspect", "artifact show",
    "artifact diff", "artifact export", "artifact propose", "artifact optimize",
    "requests run",
}  # fmt: skip
"""Commands that print what people or agents said, or was drawn from it: each reading is an audit event."""
SHOW_NONE = {
    "up", "env", "doctor", "demo", "config show", "console sessions", "console end-session", "login",
    "logout", "whoami", "trajectory list", "trajectory schema", "trajectory import", "harness list",
    "lineage", "feedback", "lake status", "lake maintain", "lake compact", "lake price", "lake prices",
    "lake vacuum", "lake verify", "lake expire", "lake forget", "policy check", "policy test", "policy explain",
    "policy diff", "policy dry-run", "policy adopt", "policy schema", "consent grant", "consent withdraw",
    "consent import", "consent show", "quarantine list", "quarantine show", "quarantine release",
    "quarantine drop", "approvals list", "approvals approve", "approvals deny", "approvals credential", "trajectory correct", "requests list",
    "requests show", "requests approve", "requests reject", "quality report", "quality substrate",
    "review queues", "review next", "review answer", "review agreement", "erase", "audit verify", "audit anchor", "audit list", "audit public-key", "audit verify-certificate",
    "audit scan", "substrate build", "substrate list", "substrate show", "credit compute", "credit judge",
    "credit list", "credit algorithms", "train plan", "train run", "train join", "train list",
    "train show", "train adopt", "train promote", "train rollback", "train try", "train end-trial",
    "schedule list", "schedule check", "schedule run", "schedule watch", "schedule history",
    "schedule export", "evolve plan", "evolve run", "evolve history", "evolve approve", "evolve reject",
    "artifact add", "artifact list", "artifact promote", "artifact rollback",
    "artifact try", "artifact end-trial", "artifact examine", "trial begin", "trial list", "trial show",
    "trial step", "trial approve", "trial reject", "trial end", "gateway", "gateway run", "gateway probe",
    "gateway inventory", "gateway rotate-spool-key", "govern", "serve", "sql-server", "tap",
    "keys create", "keys limit", "keys rotate", "keys list", "keys revoke",
}  # fmt: skip
"""Commands that print counts, names and states alone, or text that its own author gave."""


def test_each_command_is_known_to_show_content_or_none() -> None:
    assert not SHOW_CONTENT & SHOW_NONE
    assert set(commands()) <= SHOW_CONTENT | SHOW_NONE
    assert set(commands()) >= SHOW_CONTENT


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        (("trajectory", "show", "t00001"), "content.read"),
        (("trajectory", "show", "t00001", "--json"), "content.read"),
        (("sql", "select parts from conversation", "--json"), "lake.asked"),
        (("sql", "select parts from conversation", "--format", "csv"), "lake.asked"),
        (("trajectory", "export", "--output", "{folder}/out.jsonl", "--purpose", "train_sft"), "trajectories.exported"),
    ],
)  # fmt: skip
def test_a_reading_is_an_audit_event(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], action: str
) -> None:
    lake_of(tmp_path / "home" / "lake", Session(1))
    given = [one.format(folder=tmp_path) for one in arguments]
    assert run(["--home", str(tmp_path / "home"), *given]) == 0
    written = [one.read_text() for one in tmp_path.glob("out.jsonl")]
    assert "lamps" in "".join([capfd.readouterr().out, *written])
    (entry,) = AppContext(tmp_path / "home", debug=False).audit.entries()
    assert (entry.actor, entry.action) == (system_user().name, action)
    assert "lamps" not in json.dumps(entry.detail)


SKILL = """\
apiVersion: headrace/v1
kind: Artifact
metadata: {name: lamps, description: Sells lamps.}
spec:
  proposer: jo
  licence: CC0-1.0
  skill:
    title: Selling lamps
    trigger: {phrases: [lamp]}
    procedure: 1. Ask which lamps.
"""


def test_skills_that_are_written_to_disk_or_looked_through_are_readings(tmp_path: Path) -> None:
    (tmp_path / "skill.yaml").write_text(SKILL)
    lake_of(tmp_path / "home" / "lake", Session(1))

    def readings(*arguments: str) -> list[tuple[str, object]]:
        home = ["--home", str(tmp_path / "home")]
        assert run([*home, *arguments]) == 0
        entries = AppContext(tmp_path / "home", debug=False).audit.entries()
        return [(one.subject, one.detail) for one in entries if one.action == "content.read"]

    assert readings("artifact", "add", str(tmp_path / "skill.yaml")) == []
    assert readings("artifact", "promote", "lamps", "0001") == []
    assert readings("artifact", "export", str(tmp_path / "out")) == [
        ("lamps@0001", '{"command": "artifact export"}')
    ]
    assert "which lamps" in (tmp_path / "out" / "lamps" / "SKILL.md").read_text()
    for asked, subject in (("lamps", "lamps@0001"), (str(tmp_path / "skill.yaml"), "lamps")):
        assert readings("evolve", "inspect", asked)[-1] == (
            subject,
            '{"command": "evolve inspect"}',
        )
