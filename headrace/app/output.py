"""Prints results: tables for a person, JSON for a program."""

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Protocol, overload

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trajectory.files import replacing

_LINE_SECONDS = 10.0
_READABLE = 16
"""Characters that a column needs to be readable; longer values are folded from there on."""
_FOLD_AT = 200
"""Where a column is folded that goes to a file or a pipe."""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)")
_TURNING = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that turn the direction of a text."""
_UNSEEN = {
    code: f"\\x{code:02x}"
    for code in (*range(0x20), *range(0x7F, 0xA0))
    if code not in (0x09, 0x0A)
} | {code: f"\\u{code:04x}" for code in _TURNING}
"""Characters that steer a terminal, and what is shown instead."""
_BREAKING = {0x0A: "\\n", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""What begins a new line, and what is shown instead; the others are among those above."""
_UNSEEN_IN_JSON = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_TURNING)}
"""The same in JSON, which escapes the rest itself; whoever reads it gets the same text."""


def printable(text: str) -> str:
    """Return ``text`` without what would steer a terminal: captured text is somebody else's."""
    return text.translate(_UNSEEN)


def one_line(text: str) -> str:
    """Return ``text`` as one line of a log: what somebody else wrote begins no line of its own."""
    return text.translate(_UNSEEN | _BREAKING)


def styled(*parts: str | tuple[str, str]) -> Text:
    """Return a line of texts, each alone or with its style; nothing in them is taken as markup."""
    return Text.assemble(
        *(
            printable(part) if isinstance(part, str) else (printable(part[0]), part[1])
            for part in parts
        )
    )


def jsonable(value: Any) -> Any:
    """Return ``value`` with dataclasses, times, paths and bytes in their JSON form."""
    if is_dataclass(value) and not isinstance(value, type):
        return jsonable(asdict(value))
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(v) for v in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        # SQL's sum of whole numbers arrives as a decimal without places.
        return int(value) if value.as_tuple().exponent == 0 else float(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    return value


def print_json(value: Any) -> None:
    """Print one JSON value on standard output."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    sys.stdout.write(json_text(value, ensure_ascii=not utf8, indent=2) + "\n")


def json_text(value: Any, *, ensure_ascii: bool = False, indent: int | None = None) -> str:
    """Return a value as JSON that steers no terminal."""
    text = json.dumps(jsonable(value), ensure_ascii=ensure_ascii, indent=indent, default=str)
    return text.translate(_UNSEEN_IN_JSON)


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """Give a file for results: its owner's alone, for it may hold what people said; whole or not there.

    A pipe or a device gets the bytes as they come.
    """
    with path.open("wb") if path.exists() and not path.is_file() else replacing(path) as file:
        yield file


@overload
def moment(seconds: float) -> datetime: ...
@overload
def moment(seconds: None) -> None: ...
def moment(seconds: float | None) -> datetime | None:
    """Return seconds since 1970 as a time to show, to the second."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).replace(microsecond=0)


def cell(value: Any) -> str:
    """Return ``value`` as the text of a table cell."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e6 else f"{value:,.0f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, list | tuple | dict):
        return json.dumps(jsonable(value), ensure_ascii=False)
    return str(value)


def print_rows(
    rows: Sequence[Mapping[str, Any]],
    *,
    as_json: bool,
    columns: Sequence[str] | None = None,
    title: str | None = None,
    empty: str = "nothing to show",
) -> None:
    """Print rows as a table, or as a JSON list with ``as_json``."""
    if as_json:
        print_json(list(rows))
        return
    if not rows:
        if empty:
            note(empty, style="dim")
        return
    names = list(columns or rows[0])
    texts = [[printable(cell(row.get(name))) for name in names] for row in rows]
    out = console()
    if out.is_terminal and _least_width(names, texts) > out.width:
        _print_records(out, names, texts, title)
        return
    table = Table(title=_title(title), title_justify="left", header_style="bold")
    for name in names:
        numeric = all(isinstance(row.get(name), int | float | None) for row in rows)
        table.add_column(
            styled(name),
            justify="right" if numeric else "left",
            overflow="fold",
            max_width=None if out.is_terminal else _FOLD_AT,
        )
    for values in texts:
        table.add_row(*map(Text, values))
    out.print(table)


def _least_width(names: Sequence[str], texts: Sequence[Sequence[str]]) -> int:
    """Return how wide a terminal must be to show these rows as a table that can be read."""
    widest = [
        max(map(len, (name, *(row[column] for row in texts)))) for column, name in enumerate(names)
    ]
    return sum(min(width, _READABLE) + 3 for width in widest) + 1


def _print_records(
    out: Console, names: Sequence[str], texts: Sequence[Sequence[str]], title: str | None
) -> None:
    """Print each row as a block, a line for each field, as psql does where rows are too wide."""
    if title is not None:
        out.print(_title(title))
    for number, values in enumerate(texts, start=1):
        out.print(styled((f"─ {number} " + "─" * 12, "dim")))
        grid = _grid(None)
        for name, value in zip(names, values, strict=True):
            grid.add_row(Text(printable(name)), Text(value))
        out.print(grid)


def print_fields(fields: Mapping[str, Any], *, as_json: bool, title: str | None = None) -> None:
    """Print one record, a line for each field, or a JSON object with ``as_json``."""
    if as_json:
        print_json(fields)
        return
    grid = _grid(title)
    for name, value in fields.items():
        grid.add_row(Text(printable(name)), Text(printable(cell(value))))
    console().print(grid)


def _grid(title: str | None) -> Table:
    grid = Table(
        title=_title(title), title_justify="left", show_header=False, box=None, pad_edge=False
    )
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    return grid


def _title(title: str | None) -> Text | None:
    return None if title is None else Text(printable(title), style="italic")


def console() -> Console:
    """Return the console of standard output; as wide as it takes when it is not a terminal."""
    return Console(
        width=None if sys.stdout.isatty() else 10_000, highlight=False, markup=False, emoji=False
    )


def note(text: str, *, style: str | None = None) -> None:
    """Print a remark for the person on standard error."""
    Console(stderr=True, highlight=False, markup=False, emoji=False).print(
        printable(text), style=style, soft_wrap=True
    )


class Advance(Protocol):
    """Reports progress: ``advance(done)`` or ``advance(done, total)``, both absolute counts."""

    def __call__(self, done: float, total: float | None = None, /) -> None: ...


@contextmanager
def progress(label: str, total: float | None = None, *, quiet: bool = False) -> Iterator[Advance]:
    """Show progress on standard error: a bar on a terminal, else a line every ten seconds.

    Yields a function to be called with the absolute count of what is done.
    """
    if quiet:
        yield lambda _done, _total=None: None
        return
    if sys.stderr.isatty():
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=total)
            yield lambda done, total=None: bar.update(
                task, completed=done, **({} if total is None else {"total": total})
            )
        return
    last = time.monotonic()

    def advance(done: float, new_total: float | None = None, /) -> None:
        nonlocal last, total
        total = new_total if new_total is not None else total
        if time.monotonic() - last >= _LINE_SECONDS:
            last = time.monotonic()
            note(f"{label}: {done:g}" + (f" of {total:g}" if total else ""))

    yield advance
