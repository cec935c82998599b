"""One substrate that cannot be read stands in nobody's way: not of another, not of a withdrawal."""

from pathlib import Path

import pytest

from headrace.app.context import AppContext
from headrace.cli import run
from headrace.services.substrates import find_manifest
from tests.train.lakes import Session, lake_of
from tests.train.registry.test_versions import learned_from
from tests.train.substrate.test_build import build, withdraw


@pytest.mark.parametrize("left", [b"", b"{}", b'{"name": "sh'])
def test_a_damaged_substrate_stands_in_nobodys_way(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    left: bytes,
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    lake = lake_of(tmp_path / "lake", Session(1), Session(2))
    whole = build(lake, tmp_path / "substrates")
    torn = build(lake, tmp_path / "substrates" / "other", split={"holdout": 0.0})
    folder = tmp_path / "substrates" / "torn"
    (tmp_path / "substrates" / "other" / "shop").rename(folder)
    (folder / torn.version / "manifest.json").write_bytes(left)
    assert run(["substrate", "show", f"shop@{whole.version}"]) == 0
    app = AppContext(home_option=tmp_path, debug=False)
    assert find_manifest(app, None).version == whole.version, "the latest that can be read"
    assert run(["substrate", "list"]) == 0
    assert "torn" in capsys.readouterr().err
    assert run(["consent", "withdraw", "maria@example.org", "--tenant", "acme"]) == 0
    assert run(["substrate", "show", f"torn@{torn.version}"]) in (2, 3)
    assert "torn" in capsys.readouterr().err


def test_a_withdrawal_names_what_serves_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    registry, lake = learned_from(tmp_path, 1, 2)
    command = ["consent", "withdraw", "maria@example.org", "--tenant", "acme"]
    assert run(command) == 0
    assert "serves on" not in capsys.readouterr().err
    withdraw(lake, "b2:subject-2")
    assert run(command) == 0
    told = capsys.readouterr().err
    assert "shop@0002 serves on" in " ".join(told.split())
    assert "shop@0001" not in told
    live = registry.live("shop")
    assert live is not None
    assert live.label == "shop@0002"
    audit = AppContext(home_option=tmp_path, debug=False).audit
    stale = [entry for entry in audit.entries() if entry.action == "model.stale"]
    assert [entry.subject for entry in stale] == ["shop@0002"]
