"""``headrace harness`` lists agents, shows a version and says what was edited."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import run
from lakehouse.lake import Lake
from tests.governance.factories import T0, assembly, call, governor, placed, system, user
from trajectory.canonical import JsonObject

PROMPT = "You are the refund agent.\nBe polite to everybody who asks.\nIt is {} now."
TOOL: JsonObject = {"name": "refund", "description": "Refunds.", "input_schema": {"type": "object"}}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    made = Lake.open(str(tmp_path / "home" / "lake"))
    calls = [asked(n, PROMPT.format(f"12:0{n}")) for n in (1, 2, 3)]
    calls += [asked(4, PROMPT.format("12:04").replace("polite", "brief"))]
    calls += [asked(5, "Write a title.", agent="titles", tools=())]
    calls += [asked(6, "Write a title.", agent="titles", tools=(), client={"app_id": "desk"})]
    batch = governor(known=made.known_content(), lineages=made.lineages()).judge(
        assembly(*(placed(one, trajectory=f"t{at}") for at, one in enumerate(calls)))
    )
    made.append(batch, app_id="t", version=0)
    return made


def asked(number: int, prompt: str, **changes: Any) -> Any:
    return call(
        number, context=(system(prompt), user(f"q {number}")), **{"tools": (TOOL,), **changes}
    )


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(["harness", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_versions_are_listed_with_what_they_served(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = answer(capsys, "list")
    counted = [(row["app"], row["version"], row["trajectories"], row["steps"]) for row in rows]
    assert counted == [("desk", 1, 1, 1), ("shop", 1, 3, 3), ("shop", 2, 1, 1), ("shop", 1, 1, 1)]
    assert rows[0]["name"] == "titles"
    assert rows[0]["roles"] == ["titles"]
    assert rows[1]["first_seen_at"] == (T0 + timedelta(seconds=1)).isoformat()
    assert [row["app"] for row in answer(capsys, "list", "--app", "desk")] == ["desk"]
    assert run(["harness", "list"]) == 0
    assert "agent-" in capsys.readouterr().out


def test_a_version_is_shown_by_name_and_number(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    name = answer(capsys, "list", "--app", "shop")[0]["name"]
    assert "brief" in answer(capsys, "show", name)["system_prompt"], "the latest"
    first = answer(capsys, "show", f"{name}@1")
    assert "polite" in first["system_prompt"]
    assert first["tools"] == [TOOL]
    assert run(["harness", "show", f"{name}@1"]) == 0
    assert "Be polite to everybody" in capsys.readouterr().out


def test_a_difference_is_what_somebody_edited(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    name = answer(capsys, "list", "--app", "shop")[0]["name"]
    said = answer(capsys, "diff", f"{name}@1", f"{name}@2")
    assert said["removed"] == ["Be polite to everybody who asks."]
    assert said["added"] == ["Be brief to everybody who asks."]
    assert run(["harness", "diff", f"{name}@1", f"{name}@2"]) == 0
    out = capsys.readouterr().out
    assert "-Be polite" in out
    assert "12:0" not in out
    assert run(["harness", "diff", name, name]) == 0
    assert "no difference" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked_for", "said"),
    [("nobody", "harness list"), ("titles", "--app desk"), ("titles@9", "choose one")],
)
def test_a_wrong_name_says_what_is_right(
    lake: Lake, capsys: pytest.CaptureFixture[str], asked_for: str, said: str
) -> None:
    assert run(["harness", "show", asked_for]) == 2
    assert said in capsys.readouterr().err


def test_a_version_whose_text_expired_says_so(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.table("harnesses").delete()
    assert run(["harness", "show", "titles", "--app", "desk"]) == 2
    assert "expired" in capsys.readouterr().err
