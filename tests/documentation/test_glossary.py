"""One thing has one name: no setting, policy key, command, option, table, column or class uses another."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from headrace.app.setting_sources import explain_settings
from headrace.cli import app
from headrace.services.documents import json_schema
from lakehouse.schema.tables import TABLES
from trajectory import schema as trajectory_schema

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("trajectory", "proxy", "governance", "lakehouse", "train", "evolve", "headrace")
_ROW = re.compile(r"\| (?P<word>[^|]+) \| (?P<meaning>[^|]+) \| (?P<never>[^|]+) \|")


def glossary() -> dict[str, str]:
    """Return each word that is not used, and the one that stands for the thing."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Glossary")[2]
    rows = [match for match in map(_ROW.fullmatch, text.splitlines()) if match][1:]
    return {never: row["word"] for row in rows for never in row["never"].split(", ")}


def _commands(name: str, command: Any) -> Iterator[str]:
    yield name
    for parameter in command.params:
        yield from (f"{name} {option}" for option in parameter.opts)
    for inner, child in getattr(command, "commands", {}).items():
        yield from _commands(f"{name} {inner}", child)


def _keys(schema: Any, place: str) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("properties", "$defs", "definitions") and isinstance(value, dict):
                yield from (f"{place} {name}" for name in value)
            yield from _keys(value, place)
    elif isinstance(schema, list):
        for value in schema:
            yield from _keys(value, place)


def _classes() -> Iterator[str]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    yield f"class {node.name}"


def names() -> Iterator[str]:
    """Yield every name that a user or a reader of the code meets."""
    yield from _commands("headrace", typer.main.get_command(app))
    yield from (f"setting {one.name}" for one in explain_settings(home=Path("/home-folder")))
    yield from _keys(json_schema(), "policy key")
    yield from _keys(trajectory_schema.json_schema(), "trajectory key")
    for table in TABLES.values():
        yield from (f"column {table.name}.{column.name}" for column in table.columns)
    yield from _classes()


def test_no_name_is_a_second_one_for_a_thing() -> None:
    instead = glossary()
    found = {
        name: f"{word}: say {instead[word]}"
        for name in names()
        for word in map(str.lower, re.findall(r"[a-z0-9]+|[A-Z][a-z0-9]*", name))
        if word in instead
    }
    assert found == {}


def test_the_glossary_is_read_and_the_names_too() -> None:
    assert {"door", "dataset", "wal", "backend"} <= set(glossary())
    listed = set(names())
    for name in ("headrace sql-server", "setting sql_server.port", "column steps.step_id"):
        assert name in listed
    assert any(name.startswith("policy key ") for name in listed)
