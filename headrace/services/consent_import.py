"""Grants and withdrawals from a CSV or Parquet file."""

import csv
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from proxy.keys import PURPOSES
from trajectory.errors import ConfigurationError

_COLUMNS = ("subject", "purpose", "granted", "recorded_at", "reference")
_TRUE = frozenset({"true", "yes", "1", "granted", "t", "y"})
_FALSE = frozenset({"false", "no", "0", "withdrawn", "f", "n"})


class ConsentRow(NamedTuple):
    """One line of a file."""

    subject: str
    """The person's own value, or a pseudonym, or ``*``."""
    purpose: str
    granted: bool
    recorded_at: datetime
    reference: str | None


def read_consents(path: Path, *, now: datetime) -> list[ConsentRow]:
    """Return the rows of a file with the columns subject, purpose, granted [recorded_at, reference].

    ``purpose`` may be ``all``. A time without a zone is UTC; without a time, the row counts from now.

    Raises:
        ConfigurationError: a column is missing, or a value is none; names the line, not the person.
    """
    rows: list[ConsentRow] = []
    for number, said in _lines(path):
        subject = str(said.get("subject") or "").strip()
        purpose = str(said.get("purpose") or "").strip()
        if not subject:
            raise ConfigurationError(f"{path.name}:{number}: subject is empty.")
        if purpose not in (*PURPOSES, "all"):
            raise ConfigurationError(
                f"{path.name}:{number}: unknown purpose. Valid: all, {', '.join(PURPOSES)}."
            )
        granted = _granted(said.get("granted"), f"{path.name}:{number}")
        moment = _moment(said.get("recorded_at"), now, f"{path.name}:{number}")
        reference = str(said.get("reference") or "").strip() or None
        purposes = PURPOSES if purpose == "all" else (purpose,)
        rows += [ConsentRow(subject, one, granted, moment, reference) for one in purposes]
    return rows


def _lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            table = pq.read_table(path)
            _check(path, table.column_names)
            yield from enumerate(table.to_pylist(), start=1)
            return
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            _check(path, reader.fieldnames or ())
            yield from enumerate(reader, start=2)
    except ConfigurationError:
        raise
    except (OSError, ValueError, csv.Error) as error:
        raise ConfigurationError(f"{path}: cannot be read ({type(error).__name__}).") from None


def _check(path: Path, names: Any) -> None:
    missing = [name for name in _COLUMNS[:3] if name not in names]
    strange = [name for name in names if name not in _COLUMNS]
    if missing or strange:
        what = f"no column {missing[0]!r}" if missing else f"unknown column {strange[0]!r}"
        raise ConfigurationError(f"{path.name}: {what}. Valid: {', '.join(_COLUMNS)}.")


def _granted(value: Any, where: str) -> bool:
    word = str(value).strip().lower()
    if word not in _TRUE | _FALSE:
        raise ConfigurationError(f"{where}: granted must be true or false.")
    return word in _TRUE


def _moment(value: Any, now: datetime, where: str) -> datetime:
    if value is None or value == "":
        return now
    try:
        moment = (
            value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
        )
    except ValueError:
        raise ConfigurationError(f"{where}: recorded_at is no ISO 8601 time.") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if moment > now:
        raise ConfigurationError(f"{where}: recorded_at lies in the future.")
    return moment
