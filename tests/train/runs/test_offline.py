"""While a run goes on, libraries are offline and write into its scratch folder; then all is undone."""

import os
import sys
from pathlib import Path

import pytest

from train.runs.offline import quiet_libraries


def test_environment_is_set_and_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", "mine")
    monkeypatch.delenv("HF_HUB_DISABLE_TELEMETRY", raising=False)
    scratch = tmp_path / "scratch"
    with quiet_libraries(scratch):
        assert os.environ["HF_HUB_DISABLE_TELEMETRY"] == "1"
        assert os.environ["HF_DATASETS_CACHE"].startswith(str(scratch))
        (scratch / "rows").write_text("governed")
    assert os.environ["HF_DATASETS_CACHE"] == "mine"
    assert "HF_HUB_DISABLE_TELEMETRY" not in os.environ
    assert not scratch.exists()


def test_scratch_is_deleted_after_a_failure_too(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), quiet_libraries(tmp_path / "scratch"):
        raise ZeroDivisionError
    assert not (tmp_path / "scratch").exists()


def test_what_libraries_print_does_not_stand_among_our_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with quiet_libraries(tmp_path / "scratch"):
        sys.stdout.write("* metrics logged")
    sys.stdout.write("{}")
    assert capsys.readouterr() == ("{}", "* metrics logged")
