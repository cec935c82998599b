"""A dry run of another bundle on a stored day."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.app.master_key import load_secrets
from headrace.cli import run
from lakehouse.lake import Lake
from tests.headrace.pipelines import pipeline
from tests.headrace.test_pipeline import EXCHANGES, PERSON, fill


def test_what_another_bundle_would_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    load_secrets(tmp_path / "secrets", create=True)
    fill(tmp_path)
    governing = pipeline(tmp_path)
    while governing.run_batch() is not None:
        pass
    day = datetime.fromtimestamp(1_790_000_000, UTC).date().isoformat()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "lake").rglob("*")}
    assert run(["policy", "dry-run", "strict", "--day", day, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["steps"] == EXCHANGES
    assert said["messages"] > 0
    changes = {(c["kind"], c["rule"], c["change"]): c["rows"] for c in said["changes"]}
    assert changes["Consent", "no-purpose", "stored → left out"] == EXCHANGES
    assert changes["Capture", "without", "without tokens"] == EXCHANGES
    assert any("headers" in line for line in said["not_judged"])
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "lake").rglob("*")}
    assert before == after
    assert Lake.open(str(tmp_path / "lake")).query("select 1 as x").num_rows == 1

    assert run(["policy", "dry-run", "default", "--day", "1999-01-01", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"] == []
    assert run(["policy", "dry-run", "default", "--day", "1999-01-01"]) == 0
    said_to_people = " ".join("".join(capsys.readouterr()).split())
    assert "nothing was stored in the days up to 1999-01-01" in said_to_people
    assert run(["policy", "dry-run", "default", "--day", "soon"]) == 2

    docs = tmp_path / "docs"
    assert run(["quality", "report", "--day", day, "--data-docs", str(docs), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["steps"] == EXCHANGES
    assert all(one["failed"] == 0 for one in said["expectations"])
    pages = "".join(path.read_text() for path in docs.rglob("*.html"))
    assert "finished" in pages
    assert PERSON not in pages
