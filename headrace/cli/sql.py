"""``headrace sql``: ask the trajectory lake."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.common import Running
from headrace.render import print_rows
from trajectory.errors import ConfigurationError, HeadraceError, WorkError

_MOST_ROWS = 1_000_000
FORMATS = ("table", "json", "jsonl", "csv", "parquet", "arrow")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="sql")(sql)


def sql(
    context: typer.Context,
    query: Annotated[
        str | None, typer.Argument(help="SQL; without it, an interactive prompt.")
    ] = None,
    output_format: Annotated[
        str, typer.Option("--format", "-f", help=f"One of: {', '.join(FORMATS)}.")
    ] = "table",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File for the result; else standard output."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    seconds: Annotated[
        float, typer.Option("--timeout", min=1, help="Seconds after which the query is ended.")
    ] = 60,
) -> None:
    """Run SQL over the lake's views and tables.

    Try: headrace sql "select * from success_by_model" · headrace sql "show tables"
    """
    chosen = "json" if as_json else output_format
    if chosen not in FORMATS:
        raise ConfigurationError(f"unknown format {chosen!r}. Valid: {', '.join(FORMATS)}.")
    running = Running.of(context)
    if query is None:
        _interactive(running, seconds)
        return
    _write(running, query, chosen, output, seconds)


def ask(running: Running, query: str, *, seconds: float) -> Any:
    """Return the rows of one SELECT, run in a process that can read the lake's tables and nothing else.

    Raises:
        ConfigurationError: the SQL is wrong, or is more than a question.
        WorkError: it took longer than ``seconds``, or there are too many rows for one answer.
    """
    from lakehouse.sandbox import Limits, query_untrusted

    if not running.lake.location.is_local:
        return running.lake.query(query)
    limits = Limits(seconds=seconds, memory_mib=2048, rows=_MOST_ROWS, result_mib=1024)
    result = query_untrusted(running.lake, query, limits=limits)
    if result.truncated:
        raise WorkError(f"more than {_MOST_ROWS:,} rows: add a limit, or a condition.")
    return result.table


def _write(running: Running, query: str, chosen: str, output: Path | None, seconds: float) -> None:
    result = ask(running, query, seconds=seconds)
    if chosen in ("table", "json") and output is None:
        print_rows(result.to_pylist(), as_json=chosen == "json", columns=result.column_names)
        return
    if chosen in ("table", "json"):
        raise ConfigurationError("--output needs --format jsonl, csv, parquet or arrow.")
    if chosen in ("parquet", "arrow") and output is None and sys.stdout.isatty():
        raise ConfigurationError(f"{chosen} is binary: give --output FILE or a pipe.")
    target = output.open("wb") if output else sys.stdout.buffer
    try:
        _encode(result, chosen, target)
    finally:
        if output:
            target.close()


def _encode(result: Any, chosen: str, target: Any) -> None:
    import polars as pl

    frame = pl.from_arrow(result)
    if not isinstance(frame, pl.DataFrame):
        raise TypeError("a query result is a table")
    if chosen == "csv":
        nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
        frame.with_columns(pl.col(nested).map_elements(str, return_dtype=pl.String)).write_csv(
            target
        )
    elif chosen == "jsonl":
        frame.write_ndjson(target)
    elif chosen == "parquet":
        frame.write_parquet(target)
    else:
        frame.write_ipc(target)


def _interactive(running: Running, seconds: float) -> None:
    if not sys.stdin.isatty():
        query = sys.stdin.read()
        if query.strip():
            _write(running, query, "table", None, seconds)
        return
    import readline

    history = running.home.root / "sql_history"
    if history.exists():
        readline.read_history_file(history)
    print_hint = (
        "SQL over the lake; `show tables` lists what there is, end with ; and Ctrl-D leaves."
    )
    typer.echo(print_hint, err=True)
    words = _words(running)
    readline.set_completer(lambda text, state: _completion(words, text, state))
    readline.parse_and_bind("tab: complete")
    lines: list[str] = []
    while True:
        try:
            lines.append(input("headrace> " if not lines else "     ...> "))
        except EOFError:
            break
        except KeyboardInterrupt:
            lines.clear()
            typer.echo("", err=True)
            continue
        if not lines[-1].rstrip().endswith(";"):
            continue
        query, lines = "\n".join(lines).rstrip().rstrip(";"), []
        try:
            _write(running, query, "table", None, seconds)
        except HeadraceError as error:
            typer.echo(str(error), err=True)
    readline.set_history_length(1000)
    readline.write_history_file(history)
    history.chmod(0o600)


def _words(running: Running) -> list[str]:
    result = running.lake.query("select table_name, column_name from information_schema.columns")
    names = {str(row[key]) for row in result.to_pylist() for key in ("table_name", "column_name")}
    return sorted(names | {"select", "from", "where", "group by", "order by", "limit", "join"})


def _completion(words: list[str], text: str, state: int) -> str | None:
    matches = [word for word in words if word.startswith(text.lower())]
    return matches[state] if state < len(matches) else None
