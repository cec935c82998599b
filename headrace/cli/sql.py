"""``headrace sql``: ask the trajectory lake."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from headrace.app.context import AppContext
from headrace.app.output import note, print_rows
from headrace.cli.row_formats import BINARY, FORMATS, chosen_format, write
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    import subprocess

    from lakehouse.read.snapshot import AsOf
    from lakehouse.sandbox.stream import QueryResult

_SCREEN_ROWS = 10_000
_ALL_ROWS = 1 << 40


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="sql")(sql)


@dataclass(frozen=True, slots=True)
class Asking:
    """Runs queries on one lake, at one moment, within limits."""

    running: AppContext
    seconds: float
    memory_mib: int
    as_of: "AsOf | None"

    @contextmanager
    def answer(
        self, query: str, *, rows: int, process: "subprocess.Popen[bytes] | None" = None
    ) -> "Iterator[QueryResult]":
        """Run the query in a process that can read the lake's tables and nothing else.

        Raises:
            ConfigurationError: the SQL is wrong, or does more than query.
            WorkError: it took too long, or too much memory.
        """
        from lakehouse.sandbox.client import open_untrusted
        from lakehouse.sandbox.request import Limits, Query

        limits = Limits(self.seconds, self.memory_mib, rows, result_mib=1 << 30)
        statement = Query(query, as_of=self.as_of)
        lake = self.running.lake
        with open_untrusted(lake, statement, limits=limits, process=process) as answer:
            yield answer


def sql(
    context: typer.Context,
    query: Annotated[
        str | None, typer.Argument(help="SQL; without it, an interactive prompt.")
    ] = None,
    output_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help=f"One of: {', '.join(FORMATS)}. Without it, what the output's suffix says.",
            show_default="table",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File for the result; else standard output."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    as_of: Annotated[
        str | None,
        typer.Option(
            help="An earlier state: 2026-11-20T12:00, or versions of tables, steps=12,messages=9."
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--timeout", min=1, help="Seconds after which the query is ended.")
    ] = 60,
    memory_mib: Annotated[
        int, typer.Option("--memory", min=64, help="MiB of memory that the query may use.")
    ] = 2048,
) -> None:
    """Run SQL over the lake's views and tables.

    Try: headrace sql "select * from success_by_model" · headrace sql "show tables"
    """
    suffix = None if output is None else output.suffix
    chosen = chosen_format("json" if as_json else output_format, suffix)
    asking = Asking(AppContext.of(context), seconds, memory_mib, moment_or_versions(as_of))
    if query is None and sys.stdin.isatty():
        from headrace.cli.repl import SqlPrompt

        SqlPrompt(asking, chosen).run()
        return
    text = sys.stdin.read() if query is None else query
    if text.strip():
        show(asking, text, chosen, output)


def show(
    asking: Asking,
    query: str,
    chosen: str,
    output: Path | None = None,
    *,
    process: "subprocess.Popen[bytes] | None" = None,
) -> int:
    """Ask and print or write the rows; return how many."""
    if chosen == "table":
        with asking.answer(query, rows=_SCREEN_ROWS, process=process) as answer:
            rows = [row for batch in answer for row in batch.to_pylist()]
        print_rows(rows, as_json=False, columns=answer.schema.names, empty="no rows")
        if answer.truncated:
            note(f"the first {_SCREEN_ROWS:,} rows; all of them: --output rows.parquet")
        return len(rows)
    if chosen in BINARY and output is None and sys.stdout.isatty():
        raise ConfigurationError(f"{chosen} is binary: give --output FILE or a pipe.")
    with asking.answer(query, rows=_ALL_ROWS, process=process) as answer, _target(output) as target:
        return write(answer.schema, answer, chosen, target)


@contextmanager
def _target(output: Path | None) -> Iterator[BinaryIO]:
    """Yield where bytes go; a file appears whole or not at all."""
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = output.with_name(f".{output.name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(output)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def moment_or_versions(text: str | None) -> "AsOf | None":
    """Return what ``--as-of`` means.

    Raises:
        ConfigurationError: it is neither a moment nor versions of tables.
    """
    if text is None:
        return None
    if "=" not in text:
        with suppress(ValueError):
            moment = datetime.fromisoformat(text)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and number.strip().isdecimal() for name, _, number in pairs):
        raise ConfigurationError(
            f"--as-of {text!r} is neither a moment (2026-11-20T12:00, UTC unless said) nor versions "
            "of tables (steps=12,messages=9)"
        )
    versions = {name.strip(): int(number) for name, _, number in pairs}
    _refuse_unknown(versions)
    return versions


def _refuse_unknown(versions: dict[str, int]) -> None:
    from lakehouse.schema.tables import TABLES

    unknown: Any = sorted(set(versions) - set(TABLES))
    if unknown:
        raise ConfigurationError(
            f"--as-of: no table {unknown[0]!r}; tables: {', '.join(sorted(TABLES))}"
        )
