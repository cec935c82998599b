"""``headrace trajectory replay``: what is stored leaves this machine only where its purposes allow it."""

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.cli import run
from lakehouse.lake import Lake
from tests.headrace.installations import PlantedInstallation, chat


@pytest.mark.parametrize("option", ["--model-upstream", "--tools-upstream"])
def test_what_is_not_allowed_for_eval_goes_to_no_model_and_no_tools(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
) -> None:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    house = PlantedInstallation(tmp_path)
    one = chat(1, [{"role": "user", "content": "Refund me."}])
    house.govern(replace(one, client=replace(one.client, purposes=("debug",))))
    (row,) = Lake.open(str(house.home.lake)).query("SELECT trajectory_id FROM steps").to_pylist()
    asked = ["trajectory", "replay", row["trajectory_id"], option, "http://127.0.0.1:9"]
    assert run([*asked, "--", "true"]) == 2
    assert "not allowed for the purpose eval" in capsys.readouterr().err
