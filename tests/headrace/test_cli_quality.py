"""``headrace quality`` and the gate of ``headrace substrate build``, as a privacy officer meets them."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from governance.records import GovernedBatch
from headrace.cli import run
from headrace.services.dry_run import StoredReference
from lakehouse.lake import Lake
from tests.headrace.pipelines import pipeline
from tests.headrace.test_pipeline import EXCHANGES, fill
from tests.lakehouse import make
from tests.train.lakes import Session, lake_of

QUALITY = """
apiVersion: headrace/v1
kind: Quality
metadata: {name: light}
spec:
  substrate:
    expectations:
      - name: nothing-personal-left
        expectation: expect_column_values_to_be_in_set
        column: leftover_findings
        value_set: [0]
"""
SUBSTRATE = """
apiVersion: headrace/v1
kind: Substrate
metadata: {name: shop}
spec: {purposes: [train_sft], reward: {signals: {success: 1.0}}, where: "trajectory_id < '%s'"}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from governance.policy.bundle import SHIPPED

    bundle = tmp_path / "policy"
    bundle.mkdir()
    for file in (SHIPPED / "default").glob("*.yaml"):
        (bundle / file.name).write_text(file.read_text())
    (bundle / "quality.yaml").write_text(QUALITY)
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    monkeypatch.setenv("HEADRACE_POLICY_BUNDLE", str(bundle))
    return tmp_path


def test_a_substrate_is_refused_with_its_reason_and_noted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake_of(home / "lake", Session(1), Session(2), Session(3, answer="Ask jo@corp-mail.com"))
    (home / "good.yaml").write_text(SUBSTRATE % "t00003")
    (home / "bad.yaml").write_text(SUBSTRATE % "t00009")
    assert run(["substrate", "build", str(home / "bad.yaml")]) == 1
    assert "quality:nothing-personal-left×1" in capsys.readouterr().err
    assert not (home / "substrates" / "shop").exists()
    assert run(["audit", "list", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["action"], entry["subject"]) == ("substrate.refused", "shop")
    assert "nothing-personal-left" in json.dumps(entry)
    assert run(["substrate", "build", str(home / "good.yaml"), "--json"]) == 0
    built = json.loads(capsys.readouterr().out)
    assert built["quality"]["expectations"] == {"nothing-personal-left": built["counts"]["items"]}

    docs = home / "docs"
    assert run(["quality", "substrate", "shop", "--data-docs", str(docs), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reasons"] == []
    pages = "".join(path.read_text() for path in docs.rglob("*.html"))
    assert "leftover_findings" in pages
    assert "headrace-drift" in pages
    stricter = QUALITY.replace("column: leftover_findings", "column: steps")
    (home / "policy" / "quality.yaml").write_text(stricter)
    assert run(["quality", "substrate"]) == 1
    assert "quality:nothing-personal-left×2" in capsys.readouterr().err


def test_drift_of_a_batch_is_measured_against_the_tenants_stored_steps(home: Path) -> None:
    fill(home)
    governing = pipeline(home)
    while governing.run_batch() is not None:
        pass
    reference = StoredReference(Lake.open(str(home / "lake")).query)
    rows = reference("tenant", 100_000)
    assert len(rows) == EXCHANGES
    assert {(row.finished, row.token_code, row.dialect) for row in rows} == {
        (1, None, "openai.chat")
    }
    assert reference("tenant", 100_000) is rows
    assert reference("somebody else", 100_000) == []


def of_two_days(home: Path) -> None:
    """Store sixty steps of a day, half of them failed, and sixty of three days before, none of them."""
    lake = Lake.open(str(home / "lake"))
    for number, (days, failed) in enumerate([(3, 0), (0, 30)]):
        at = make.NOON - timedelta(days=days)
        steps = [
            make.step(f"t{days}-{place}", 0, started_at=at, ended_at=at,
                      http_status=500 if place < failed else 200)
            for place in range(60)
        ]  # fmt: skip
        batch = GovernedBatch(steps=tuple(steps), governance=tuple(map(make.governed, steps)))
        lake.append(batch, app_id="a", version=number)


@pytest.mark.parametrize(
    ("drift", "options", "judged", "code"),
    [
        ("", [], {"http_status", "kind"}, 1),
        ("{columns: [kind]}", [], {"kind"}, 0),
        ("{columns: [http_status]}", [], {"http_status"}, 1),
        ("{most: 5}", [], {"http_status", "kind"}, 0),
        ("{most: 5}", ["--drift-from", "0.25"], {"http_status", "kind"}, 1),
        ("{reference_days: 2}", [], {"http_status", "kind"}, 0),
        ("{reference_days: 2}", ["--reference-days", "14"], {"http_status", "kind"}, 1),
    ],
)
def test_the_report_measures_drift_by_the_policy_and_options_go_before(
    home: Path,
    capsys: pytest.CaptureFixture[str],
    drift: str,
    options: list[str],
    judged: set[str],
    code: int,
) -> None:
    of_two_days(home)
    if drift:
        spec = QUALITY.replace("spec:", f"spec:\n  drift: {drift}")
        (home / "policy" / "quality.yaml").write_text(spec)
    asked = ["quality", "report", "--day", str(make.NOON.date()), "--json", *options]
    assert run(asked) == code
    found = {one["column"] for one in json.loads(capsys.readouterr().out)["drift"]}
    assert found & {"http_status", "kind"} == judged
