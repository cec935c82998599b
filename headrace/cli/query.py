"""Runs queries for the command line, and prints or writes their rows."""

import codecs
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from headrace.app.context import AppContext
from headrace.app.output import note, output_file, print_rows, printable
from headrace.app.row_formats import BINARY, write
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    import subprocess

    from lakehouse.read.snapshot import AsOf
    from lakehouse.sandbox.stream import QueryResult

_SCREEN_ROWS = 10_000
_ALL_ROWS = 1 << 40


@dataclass(frozen=True, slots=True)
class QueryRunner:
    """Runs queries on one lake, at one moment, within limits."""

    running: AppContext
    seconds: float
    memory_mib: int
    as_of: "AsOf | None"

    @contextmanager
    def result(
        self, query: str, *, rows: int, process: "subprocess.Popen[bytes] | None" = None
    ) -> "Iterator[QueryResult]":
        """Run the query in a process that can read the lake's tables and nothing else.

        Raises:
            ConfigurationError: the SQL is wrong, or does more than query.
            WorkError: it took too long, or too much memory.
        """
        from lakehouse.sandbox.client import open_untrusted
        from lakehouse.sandbox.request import Limits, Query

        key = self.running.secrets.derive(b"statement")
        hashed = blake2b(query.encode("utf-8", "replace"), key=key[:64], digest_size=20).hexdigest()
        self.running.note_reading(f"b2:{hashed}", "sql", "lake.asked")
        limits = Limits(self.seconds, self.memory_mib, rows, result_mib=1 << 30)
        statement = Query(query, as_of=self.as_of)
        lake = self.running.lake
        with open_untrusted(lake, statement, limits=limits, process=process) as result:
            yield result


def show(
    runner: QueryRunner,
    query: str,
    chosen: str,
    output: Path | None = None,
    *,
    process: "subprocess.Popen[bytes] | None" = None,
) -> int:
    """Run a query; print or write its rows and return how many they are.

    Raises:
        ConfigurationError: a time of its result is beyond what the format can show.
    """
    try:
        return _shown(runner, query, chosen, output, process=process)
    except OverflowError:
        raise ConfigurationError(
            "the result has a time outside the years 1 to 9999: cast it to VARCHAR, or give --format csv"
        ) from None


def _shown(
    runner: QueryRunner,
    query: str,
    chosen: str,
    output: Path | None,
    *,
    process: "subprocess.Popen[bytes] | None",
) -> int:
    if chosen == "table":
        with runner.result(query, rows=_SCREEN_ROWS, process=process) as result:
            rows = [row for batch in result for row in batch.to_pylist()]
        print_rows(rows, as_json=False, columns=result.schema.names, empty="no rows")
        if result.truncated:
            note(f"the first {_SCREEN_ROWS:,} rows; all of them: --output rows.parquet")
        return len(rows)
    if chosen in BINARY and output is None and sys.stdout.isatty():
        raise ConfigurationError(f"{chosen} is binary: give --output FILE or a pipe.")
    with runner.result(query, rows=_ALL_ROWS, process=process) as result, _target(output) as target:
        return write(result.schema, result, chosen, target)


class _Screen(io.RawIOBase):
    """A terminal, which the text of a row does not steer."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        sys.stdout.write(printable(self._decoder.decode(bytes(data))))
        return len(data)


@contextmanager
def _target(output: Path | None) -> Iterator[BinaryIO]:
    """Yield where bytes go; a file appears whole or not at all."""
    if output is None:
        yield cast(BinaryIO, _Screen()) if sys.stdout.isatty() else sys.stdout.buffer
        sys.stdout.flush()
        return
    with output_file(output) as file:
        yield file


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
