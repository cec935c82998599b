"""``headrace sql``: ask the trajectory lake, once or at a prompt with history and completion."""

import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.app.context import AppContext
from headrace.app.output import note
from headrace.app.row_formats import BINARY, FORMATS, chosen_format
from headrace.cli.query import QueryRunner, moment_or_versions, show
from trajectory.errors import ConfigurationError, HeadraceError

_HISTORY = 1000
_HELP = """\
End a query with ; — it may have several lines. Tab completes.
.tables            tables and views
.schema NAME       columns of one
.format NAME       table, json, jsonl or csv
.as-of [WHEN]      ask an earlier state; without WHEN the present one
.quit              leave (Ctrl-D too)"""
_DELIMITERS = " \t\n()=<>!+-*/,;'\""
_KEYWORDS = (
    "select", "distinct", "from", "where", "group by", "order by", "having", "limit", "offset",
    "join", "left join", "on", "using", "with", "union all", "as", "and", "or", "not", "in",
    "between", "like", "ilike", "is null", "is not null", "case", "when", "then", "else", "end",
    "count(*)", "sum(", "avg(", "min(", "max(", "median(", "quantile_cont(", "coalesce(",
    "date_trunc(", "unnest(", "filter (where", "over (", "partition by", "qualify", "pivot",
    "describe", "summarize", "show tables", "desc", "interval", "now()",
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="sql")(sql)


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
    saved: Annotated[
        str | None, typer.Option(help="Run the query that was saved by this name.")
    ] = None,
    save: Annotated[
        str | None, typer.Option(help="Save the query by this name, as it is typed, and run it.")
    ] = None,
    forget: Annotated[
        str | None, typer.Option(help="Forget the query that was saved by this name.")
    ] = None,
) -> None:
    """Run SQL over the lake's views and tables.

    Try: headrace sql "select * from success_by_model" · headrace sql "show tables"
    """
    if saved or save or forget:
        query = _kept(AppContext.of(context), query, saved=saved, save=save, forget=forget)
        if query is None:
            return
    suffix = None if output is None else output.suffix
    chosen = chosen_format("json" if as_json else output_format, suffix)
    runner = QueryRunner(AppContext.of(context), seconds, memory_mib, moment_or_versions(as_of))
    if query is None and sys.stdin.isatty():
        SqlPrompt(runner, chosen).run()
        return
    text = sys.stdin.read() if query is None else query
    if text.strip():
        show(runner, text, chosen, output)


def _kept(
    running: AppContext,
    query: str | None,
    *,
    saved: str | None,
    save: str | None,
    forget: str | None,
) -> str | None:
    """Save, forget or find a query by its name; return the one to run, if any.

    Raises:
        ConfigurationError: there is none of this name, or not one thing was asked for.
    """
    from headrace.services.saved_queries import SavedQueries

    if sum(map(bool, (saved, save, forget))) > 1 or bool(save) != bool(query):
        raise ConfigurationError(
            "give --save NAME with a query, or --saved NAME or --forget NAME without one."
        )
    queries, who = SavedQueries(running), running.user.name
    if forget:
        queries.forget(forget, who=who)
        return None
    if saved:
        return queries.get(saved).query
    if save and query:
        queries.save(save, query, who=who)
    return query


class SqlPrompt:
    """Reads queries from the terminal and shows their answers until it is left."""

    def __init__(self, runner: QueryRunner, chosen: str) -> None:
        self._runner = runner
        self._chosen = "table" if chosen in BINARY else chosen
        from lakehouse.sandbox.pool import Workers

        self._workers = Workers(1)
        self._lines: list[str] = []
        self._commands: dict[str, Callable[[str], None]] = {
            ".help": lambda _: typer.echo(_HELP, err=True),
            ".tables": lambda _: self._ask("SHOW TABLES"),
            ".schema": lambda name: self._ask(f'DESCRIBE "{name.replace(chr(34), "")}"'),
            ".format": self._format,
            ".as-of": self._as_of,
        }

    def run(self) -> None:
        """Prompt until Ctrl-D or ``.quit``."""
        import readline

        history = self._runner.running.home.create().root / "sql_history"
        if not history.exists():
            os.close(os.open(history, os.O_CREAT | os.O_WRONLY, 0o600))
        readline.read_history_file(history)
        readline.set_completer_delims(_DELIMITERS)
        readline.set_completer(Completer(self._names(), tuple(self._commands)).complete)
        readline.parse_and_bind("tab: complete")
        note("SQL over the lake; end with ; and see .help. Ctrl-D leaves.")
        try:
            while self._turn():
                pass
        finally:
            self._workers.close()
            readline.set_history_length(_HISTORY)
            readline.write_history_file(history)
            history.chmod(0o600)

    def _turn(self) -> bool:
        """Read a line and do what it says; False when the prompt is left."""
        try:
            line = input("     ...> " if self._lines else "headrace> ")
        except EOFError:
            typer.echo("", err=True)
            return False
        except KeyboardInterrupt:
            self._lines.clear()
            typer.echo("", err=True)
            return True
        if not self._lines and line.strip() in (".quit", ".exit"):
            return False
        try:
            self._take(line)
        except HeadraceError as error:
            note(str(error))
        except KeyboardInterrupt:
            note("interrupted")
        return True

    def _take(self, line: str) -> None:
        if not self._lines and line.lstrip().startswith("."):
            name, _, rest = line.strip().partition(" ")
            command = self._commands.get(name, self._commands[".help"])
            command(rest.strip())
            return
        if line.strip() or self._lines:
            self._lines.append(line)
        if line.rstrip().endswith(";"):
            query, self._lines = "\n".join(self._lines).rstrip().rstrip(";"), []
            if query.strip():
                self._ask(query)

    def _ask(self, query: str) -> None:
        begun = time.monotonic()
        rows = show(self._runner, query, self._chosen, process=self._workers.take())
        note(f"{rows:,} rows, {time.monotonic() - begun:.2f} s")

    def _format(self, name: str) -> None:
        wanted = [known for known in FORMATS if known not in BINARY]
        if name in wanted:
            self._chosen = name
        else:
            note(f"formats here: {', '.join(wanted)}")

    def _as_of(self, text: str) -> None:
        self._runner = replace(self._runner, as_of=moment_or_versions(text or None))

    def _names(self) -> dict[str, tuple[str, ...]]:
        """Return tables and views with their columns."""
        from lakehouse.sql_server.catalog import catalog_of

        found = catalog_of(one_tenant=False, hidden=frozenset())
        return {table.name: tuple(table.schema.names) for table in found}


class Completer:
    """Completes keywords, tables, views, columns (those of the tables that the line names first)."""

    def __init__(self, tables: dict[str, tuple[str, ...]], commands: tuple[str, ...]) -> None:
        self._tables = tables
        self._commands = commands
        self._found: list[str] = []

    def complete(self, text: str, state: int) -> str | None:
        """Return the ``state``-th way to go on, as readline asks for them."""
        if state == 0:
            import readline

            self._found = self.matches(text, readline.get_line_buffer())
        return self._found[state] if state < len(self._found) else None

    def matches(self, text: str, line: str) -> list[str]:
        """Return the words that ``text`` may become in ``line``."""
        begun = text.lower()
        if line.lstrip().startswith("."):
            if " " in line.lstrip():
                return _fitting(self._tables, begun)
            return _fitting(self._commands, begun)
        table, dot, _ = text.partition(".")
        if dot and table.lower() in self._tables:
            columns = self._tables[table.lower()]
            return [
                f"{table}.{column}" for column in columns if f"{table}.{column}".startswith(text)
            ]
        if re.search(r"\b(from|join|describe|summarize)\s+\S*$", line, re.IGNORECASE):
            return _fitting(self._tables, begun)
        named = [name for name in re.findall(r"\w+", line.lower()) if name in self._tables]
        columns = tuple(column for name in named for column in self._tables[name])
        every = tuple(column for own in self._tables.values() for column in own)
        words = _KEYWORDS if text.islower() or not text else tuple(w.upper() for w in _KEYWORDS)
        return [
            *_fitting(columns or every, begun),
            *_fitting(self._tables, begun),
            *(word for word in words if word.lower().startswith(begun)),
        ]


def _fitting(words: Any, begun: str) -> list[str]:
    return sorted({word for word in words if word.startswith(begun)})
