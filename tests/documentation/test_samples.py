"""What the pages show can be typed: commands and options exist, settings are valid, queries and programs run."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from headrace.app.setting_sources import load_settings
from headrace.app.settings import Settings
from headrace.cli import app
from lakehouse.lake import Lake

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "policies" / "README.md",
    ROOT / "examples" / "plugin" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
_BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"\$ (?:[A-Z_]+=\S+ )*headrace\b(.*)", re.DOTALL)


def blocks(*languages: str) -> Iterator[tuple[str, str]]:
    """Give every block in one of these languages, with its page."""
    for page in PAGES:
        for language, text in _BLOCK.findall(page.read_text("utf-8")):
            if language in languages:
                yield page.name, text


def commands() -> Iterator[tuple[str, list[str]]]:
    """Give the words of every command that is shown, with its page."""
    for page, text in blocks("console", "sh"):
        for shown in re.split(r"^(?=\$ )", text.replace("\\\n", " "), flags=re.MULTILINE):
            if (match := _COMMAND.match(shown)) is None:
                continue
            words = match[1].rstrip()
            while True:  # its output stands below it; what is quoted goes over several lines
                line, _, rest = words.partition("\n")
                try:
                    yield page, shlex.split(line, comments=True)
                    break
                except ValueError:
                    assert rest, f"{page}: a quotation does not end: {line}"
                    words = f"{line} {rest}"


def spoken() -> Iterator[tuple[str, list[str]]]:
    """Give the words of every command that a sentence names, with its page."""
    for page in (*PAGES, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*/*.md"))):
        for text in re.findall(r"`headrace ([a-z][^`]*)`", page.read_text("utf-8")):
            yield page.name, re.split(r" [|&;]|\.\.\.|…", text)[0].replace("|", " ").split()


def settings() -> Iterator[tuple[str, str]]:
    """Give every block of settings, with its page."""
    for page, text in blocks("yaml"):
        value = yaml.safe_load(text) if "\n---" not in text else None
        if isinstance(value, dict) and "kind" not in value and {*value} & {*Settings.model_fields}:
            yield page, text


@pytest.mark.parametrize(("page", "words"), [*commands(), *spoken()])
def test_a_shown_command_and_its_options_exist(page: str, words: list[str]) -> None:
    found: Any = typer.main.get_command(app)
    known = {option for one in found.params for option in (*one.opts, *one.secondary_opts)}
    while words and words[0] in getattr(found, "commands", {}):
        found, words = found.commands[words[0]], words[1:]
    if hasattr(found, "commands"):
        assert not words or words[0].startswith("-"), f"{page}: no command {words[0]}"
    known |= {option for one in found.params for option in (*one.opts, *one.secondary_opts)}
    for word in words:
        if word in ("--", "|", "&&", ">"):
            break
        if word.startswith("--"):
            assert word.partition("=")[0] in {*known, "--help"}, f"{page}: no option {word}"


@pytest.mark.parametrize(("page", "text"), [*settings()])
def test_shown_settings_are_settings(page: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "headrace.yaml").write_text(text, encoding="utf-8")
    load_settings(home=tmp_path)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake.open(str(tmp_path_factory.mktemp("samples") / "lake"))


@pytest.mark.parametrize(
    "sql", [words[1] for _, words in commands() if words[:1] == ["sql"] and words[1:]]
)
def test_a_shown_query_runs(lake: Lake, sql: str) -> None:
    lake.query(sql)


def test_the_shown_program_over_a_lake_runs(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = [text for _, text in blocks("python") if "headrace.open_lake" in text]
    monkeypatch.chdir(Path(lake.location.root).parent)
    exec(compile(program, "data-scientist.md", "exec"), {})  # noqa: S102 - our own page
