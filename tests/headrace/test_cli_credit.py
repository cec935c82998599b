"""``headrace credit`` computes from the command line and says what it did."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.cli import run
from lakehouse.lake import Lake
from proxy.api.feedback import read_feedback_items
from tests.lakehouse import make
from tests.train.lakes import Session, lake_of


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    made = Lake.open(str(tmp_path / "home" / "lake"))
    for number in range(3):
        one = make.batch(f"t{number}", reward=float(number))
        allowed = tuple(replace(each, purposes=("train_rl",)) for each in one.governance)
        made.append(replace(one, governance=allowed), app_id="t", version=number)
    return made


def test_credit_is_computed_listed_and_readable(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--signal", "success=2", "--parameter", "by=tenant", "--json"]
    assert run(["credit", "compute", "ema_baseline", *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["steps"], report["alone"]) == (6, 2)
    assert run(["credit", "list", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["computation_id"] == report["computation_id"]
    found = lake.query(
        "SELECT advantage FROM credits_latest WHERE position = 0 ORDER BY trajectory_id"
    )
    assert found["advantage"].to_pylist() == pytest.approx([0.0, 2.0, 4.0 - 2.0 / 1.9])


def test_an_absent_signal_leaves_out_or_counts_as_zero(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ["credit", "compute", "return_to_go", "--signal", "success=1", "--signal", "other=1"]
    assert run(both) == 0
    assert "no trajectory has a reward by other, success" in capsys.readouterr().err
    assert run([*both, "--missing", "zero", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trajectories"] == 3
    assert run([*both, "--missing", "ignore"]) == 2


def test_algorithms_are_listed_with_their_papers(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["credit", "algorithms", "--json"]) == 0
    listed = {row["algorithm"]: row for row in json.loads(capsys.readouterr().out)}
    assert "2602.22817" in listed["hgpo"]["source"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["grpo"], "--substrate"),
        (["grpo", "--signal", "success"], "name=value"),
        (["grpo", "--signal", "success=x"], "no number"),
        (["grpo", "--signal", "success=1", "--combine", "best"], "minimum"),
        (["shadow", "--signal", "success=1"], "there are"),
        (["grpo", "--substrate", "nosuch"], "substrate build"),
    ],
)
def test_wrong_usage_says_what_is_right(
    lake: Lake, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(["credit", "compute", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_prices_are_written_down_and_make_costs(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["m@1", "--tenant", "acme", "--input", "1", "--output", "2", "--json"]
    assert run(["lake", "price", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["valid_from"].startswith("2000-01-01")
    found = lake.query("SELECT sum(cost) AS cost, min(currency) AS currency FROM step_costs")
    assert found.to_pylist() == [
        {"cost": pytest.approx(6 * (10 * 1 + 5 * 2) / 1e6), "currency": "USD"}
    ]


def test_a_gate_is_part_of_the_weights(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["credit", "compute", "return_to_go", "--signal", "success=1", "--json"]
    hashes = []
    for gate in ([], ["--gate", "success=0.5"], ["--gate", "success=0.9"]):
        assert run([*asked, *gate]) == 0
        hashes.append(json.loads(capsys.readouterr().out)["weights_hash"])
    assert len(set(hashes)) == 3
    assert run([*asked, "--gate", "success"]) == 2
    assert "--gate 'success' is not name=value" in capsys.readouterr().err


def test_a_judge_scores_steps_as_lines_for_feedback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop_judges.py").write_text(
        "def step(prompt, completion): return len(completion)\n"
    )
    lake_of(tmp_path / "lake", Session(1), Session(2))
    spec = {"purposes": ["train_sft"], "reward": {"signals": {"success": 1.0}}}
    document = {"apiVersion": "headrace/v1", "kind": "Substrate", "metadata": {"name": "shop"}}
    (tmp_path / "shop.yaml").write_text(json.dumps({**document, "spec": spec}))
    assert run(["substrate", "build", str(tmp_path / "shop.yaml")]) == 0
    capsys.readouterr()
    assert run(["credit", "judge", "shop_judges:step", "--name", "length"]) == 0
    out, err = capsys.readouterr()
    items = read_feedback_items(
        json.dumps(list(map(json.loads, out.splitlines()))).encode(), tenant_id="a"
    )
    assert [(one.target_kind, one.body["name"], one.body["value"]) for one in items] == [
        ("step", "length", 2), ("step", "length", 1),
    ] * 2  # fmt: skip
    assert "4 verdicts" in err
    assert run(["credit", "judge", "shop_judges:nosuch"]) == 2
    assert "nosuch" in capsys.readouterr().err
