"""Results keep their kind on the way to JSON and to table cells."""

import io
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.app.output import (
    cell,
    jsonable,
    note,
    output_file,
    print_fields,
    print_json,
    print_rows,
)
from headrace.app.row_formats import write


@dataclass(frozen=True)
class Row:
    name: str
    at: datetime


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal(3), "3"),
        (Decimal("3.00"), "3.0"),
        (Decimal("0.25"), "0.25"),
        (Path("a/b"), '"a/b"'),
        (b"\x01\xff", '"01ff"'),
        (date(2026, 3, 1), '"2026-03-01"'),
        ((1, {2: None}), '[1, {"2": null}]'),
        (
            Row("x", datetime(2026, 3, 1, tzinfo=UTC)),
            '{"name": "x", "at": "2026-03-01T00:00:00+00:00"}',
        ),
    ],
)
def test_json_form(value: object, text: str) -> None:
    assert json.dumps(jsonable(value)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (True, "yes"),
        (1234567, "1,234,567"),
        (0.123456, "0.1235"),
        (["a"], '["a"]'),
        ("2026-11-21T19:03:06.232477+00:00", "2026-11-21 19:03:06"),
        ("2026-11-21", "2026-11-21"),
    ],
)
def test_cell(value: object, text: str) -> None:
    assert cell(value) == text


HOSTILE = "[/b] [red]x[/red] :smile: \x1b[31mred\x07 \u202eback"


@pytest.mark.parametrize("wide", [True, False])
def test_what_was_captured_is_shown_as_it_is_and_steers_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, wide: bool
) -> None:
    if not wide:
        terminal(monkeypatch, columns=20)
    print_rows([{HOSTILE: HOSTILE, "n": 1}], as_json=False, title=HOSTILE)
    print_fields({HOSTILE: HOSTILE}, as_json=False, title=HOSTILE)
    note(HOSTILE)
    shown = "".join(capsys.readouterr())
    assert "\x1b[31mred" not in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown
    if wide:
        assert shown.count(r"[/b] [red]x[/red] :smile: \x1b[31mred\x07 \u202eback") == 7


def test_json_steers_no_terminal_and_says_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "\x7f \x9b31m \u202e \u200f \u061c \x1b]0;x\x07 ä"
    target = io.BytesIO()
    write(pa.schema([("a", pa.string())]), pa.table({"a": [said]}).to_batches(), "jsonl", target)
    print_json({"a": said})
    for shown in (capsys.readouterr().out, target.getvalue().decode()):
        assert json.loads(shown) == {"a": said}
        assert not {*said.replace(" ", "").replace("ä", "")}.intersection(shown) - {*"31m]0;x"}


def test_a_file_of_results_is_its_owners_and_follows_no_link(tmp_path: Path) -> None:
    """A folder that others write to may hold links where a file is made before it is whole."""
    precious, wanted = tmp_path / "precious", tmp_path / "rows.csv"
    precious.write_text("mine")
    for name in (".rows.csv.part", ".rows.csv.tmp", "rows.csv"):
        (tmp_path / name).symlink_to(precious)
    with output_file(wanted) as file:
        file.write(b"rows")
    assert (precious.read_text(), wanted.read_text()) == ("mine", "rows")
    assert wanted.stat().st_mode & 0o777 == 0o600
    with suppress(ValueError), output_file(wanted) as file:
        file.write(b"half")
        raise ValueError
    assert wanted.read_text() == "rows"


def test_results_go_into_a_pipe_as_they_come(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with output_file(pipe) as file:
        file.write(b"rows")
    assert os.read(reader, 100) == b"rows"
    os.close(reader)


def test_rows_that_are_too_wide_for_the_terminal_become_blocks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{f"column_{number}": f"value {number}" for number in range(9)}] * 2
    print_rows(rows, as_json=False)
    assert len(capsys.readouterr().out.splitlines()) == 6  # not a terminal: one line for each row
    terminal(monkeypatch, columns=80)
    print_rows(rows, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * 10
    assert lines[3].split() == ["column_2", "value", "2"]
    assert max(map(len, lines)) <= 80
    print_rows([{"a": 1, "b": 2}], as_json=False)
    assert len(capsys.readouterr().out.splitlines()) == 5


def terminal(monkeypatch: pytest.MonkeyPatch, *, columns: int) -> None:
    """Let standard output be a terminal of this width, without colours."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
