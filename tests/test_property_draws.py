"""What property tests try in ``make test``: the same in every run, whatever else is loaded."""

import importlib
from pathlib import Path

import pytest
from hypothesis import given, strategies


def draws() -> list[tuple[int, str]]:
    """Return what a property is tried with."""
    tried: list[tuple[int, str]] = []

    @given(strategies.integers(), strategies.text())
    def note(number: int, text: str) -> None:
        tried.append((number, text))

    note()
    return tried


def test_what_is_loaded_changes_no_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = draws()
    constants = ", ".join(f"{1_000_003 * number}, 'constant {number}'" for number in range(200))
    (tmp_path / "module_with_constants.py").write_text(f"CONSTANTS = [{constants}]\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("module_with_constants")
    assert draws() == before
