"""How results reach a person or a program: tables for the one, JSON for the other."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

_LINE_SECONDS = 10.0


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
    json.dump(jsonable(value), sys.stdout, ensure_ascii=False, indent=2, default=str)
    sys.stdout.write("\n")


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
            Console(stderr=True).print(empty, style="dim")
        return
    names = list(columns or rows[0])
    table = Table(title=title, title_justify="left", header_style="bold")
    for name in names:
        numeric = all(isinstance(row.get(name), int | float | None) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(row.get(name)) for name in names))
    console().print(table)


def print_fields(fields: Mapping[str, Any], *, as_json: bool, title: str | None = None) -> None:
    """Print one record, a line for each field, or a JSON object with ``as_json``."""
    if as_json:
        print_json(fields)
        return
    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(name, cell(value))
    console().print(table)


def console() -> Console:
    """Return the console of standard output; wide when it is not a terminal, so nothing is cut."""
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)


def note(text: str) -> None:
    """Print a remark for the person on standard error."""
    Console(stderr=True, highlight=False).print(text, markup=False, soft_wrap=True)


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
