"""Plugins are found by entry point, and a broken one is named with its package and the remedy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from trajectory.errors import ConfigurationError
from trajectory.plugins import DIALECTS, REWARDS, load_plugin, load_plugins, plugins


@pytest.fixture(autouse=True)
def _found_anew() -> Iterator[None]:
    plugins.cache_clear()
    yield
    plugins.cache_clear()


def install(folder: Path, package: str, group: str, entry: str) -> None:
    """Leave in a folder what an installer writes of a package's entry points."""
    place = folder / f"{package}-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (place / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")


def test_a_plugin_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "acme", REWARDS, "longest = builtins:max")
    monkeypatch.syspath_prepend(tmp_path)
    assert load_plugin(REWARDS, "longest") is max
    assert load_plugin(REWARDS, "shortest") is None
    assert [(one.name, one.package) for one in plugins(REWARDS)] == [("longest", "acme 1.0")]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("broken = no_such_module:THING", "No module named 'no_such_module'"),
        ("broken = collections:nothing", "has no attribute 'nothing'"),
        ("broken = collections:Counter", "has no name, yields, matches, read"),
    ],
)
def test_a_broken_plugin_is_named(
    entry: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "acme", DIALECTS, entry)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=why) as caught:
        load_plugins(DIALECTS)
    assert "plugin 'broken' (headrace.dialects) of acme 1.0" in str(caught.value)
    assert "uninstall it" in str(caught.value)


def test_two_packages_may_not_bring_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "acme", REWARDS, "longest = builtins:max")
    install(tmp_path, "other", REWARDS, "longest = builtins:min")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=r"acme 1\.0 and with other 1\.0"):
        load_plugin(REWARDS, "longest")
