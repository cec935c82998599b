"""Adopted policies: of two that are adopted at once each is in force whole, the later one at the end."""

from pathlib import Path

import pytest

from headrace.app.home import Home
from headrace.services.policy_copies import adopt, copy_bundle

SHIPPED = Path(__file__).parents[3] / "policies"


def test_two_threads_adopt_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path).create()
    first, _ = copy_bundle(home, SHIPPED / "default")
    second, bundle = copy_bundle(home, SHIPPED / "strict")
    replace = Path.replace

    def meanwhile(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        assert adopt(home, second).content_hash == bundle.content_hash
        assert home.policy_in_force.resolve().name == second
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", meanwhile)
    adopt(home, first)
    assert home.policy_in_force.resolve().name == first
    assert {one.name for one in home.policies.iterdir()} == {
        first, second, home.policy_in_force.name,
    }  # fmt: skip
