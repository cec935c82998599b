"""Policy: an edit is tried in a copy, tells each rule's verdict, and changes nothing."""

import re
from pathlib import Path
from typing import Any

from governance.policy import load_bundle
from headrace.console.page import Console
from tests.headrace.console.conftest import SAME, client_of

MAIL = "ida.novak@example.org"


def send(console: Console, **sent: str) -> tuple[int, Any]:
    client = client_of(console, ("privacy", "*"), name="petra")
    answer = client.post("/policy.json?file=redaction.yaml", data=sent, headers=SAME)
    return answer.status_code, answer.json()


def test_a_text_is_judged_and_shown_as_it_would_be_stored(console: Console) -> None:
    status, told = send(console, do="try", text=f"Write to {MAIL} today.")
    assert status == 200
    stored = str(told["tried"]["messages"])
    assert MAIL not in stored
    assert "<EMAIL_ADDRESS" in stored
    assert {one["stage"] for one in told["tried"]["verdicts"]} >= {"consent", "redaction"}
    assert MAIL not in str([*console.running.audit.entries()])


def test_an_edit_is_tried_and_changes_nothing(console: Console) -> None:
    bundle = load_bundle(Path(console.running.settings.policy.bundle))
    before = (bundle.path / "redaction.yaml").read_text()
    edit = before.replace("entities: {}", "entities: {PHONE_NUMBER: mask}")
    _, told = send(console, do="try", text=f"Write to {MAIL} today.", edit=edit)
    assert [one["field"] for one in told["changes"]] == ["entities.PHONE_NUMBER"]
    assert MAIL not in str(told["tried"]["messages"])
    assert (bundle.path / "redaction.yaml").read_text() == before
    assert load_bundle(bundle.path).content_hash == bundle.content_hash


def test_a_wrong_edit_is_told_by_line_and_reads_no_other_file(console: Console) -> None:
    for edit in ("kind: Redaction\nspec: [", "a:\n- 2026-13-41", "\n" + "[" * 3_000):
        status, told = send(console, do="try", edit=edit)
        assert status == 400
        assert re.match(r"redaction\.yaml:[123]: ", told["error"]["message"])
    for name in ("../../secrets/master.key", "/etc/passwd"):
        edit = f"apiVersion: headrace/v1\nkind: Redaction\nspec: {{recognizers: ['{name}']}}"
        status, told = send(console, do="try", edit=edit)
        assert (status, "own folder alone" in told["error"]["message"]) == (400, True)


def test_a_dry_run_says_what_it_looked_at(console: Console) -> None:
    status, told = send(console, do="dry-run")
    assert (status, told["dry_run"]["steps"], told["dry_run"]["changes"]) == (200, 0, [])


def test_a_stored_step_is_judged_as_it_was_redacted(console: Console) -> None:
    (step, *_) = console.running.lake.query(
        "SELECT step_id FROM steps WHERE trajectory_id = 't00001' ORDER BY step_id"
    ).to_pylist()
    status, told = send(console, do="try", step=step["step_id"])
    assert (status, bool(told["tried"]["messages"])) == (200, True)
    noted = [(one.actor, one.action, one.subject) for one in console.running.audit.entries()]
    assert ("petra", "content.read", step["step_id"]) in noted
    assert send(console, do="try", step="nosuch")[0] == 404
