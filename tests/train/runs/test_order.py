"""What a run began with: a damaged file is named, and is never taken for another run's order."""

from dataclasses import asdict
from pathlib import Path

import pytest

from headrace.cli import run
from train.runs.order import LAST, RunOrder
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError

ORDER = RunOrder("shop@1", "base", "b2:1", {"kind": "Recipe"})


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"substrate": "shop@1"}', "\x00"])
def test_a_damaged_order_is_named(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "order.json").write_text(content)
    with pytest.raises(ConfigurationError, match=r"one/order\.json: cannot be read .*a new run"):
        ORDER.interrupted(tmp_path, "one")
    assert ORDER.interrupted(tmp_path, LAST) is None


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_damaged_papers_of_a_run_that_ended_are_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: str,
) -> None:
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    (folder / "order.json").write_bytes(canonical_json(asdict(ORDER)))
    (folder / "manifest.json").write_text(content)
    with pytest.raises(ConfigurationError, match=r"one/manifest\.json: cannot be read"):
        RunOrder.read(tmp_path / "runs", "one")
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    assert run(["train", "show", "one"]) == 2
    assert "manifest.json: cannot be read" in capsys.readouterr().err
