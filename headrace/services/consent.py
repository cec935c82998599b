"""Grants and withdrawals: recorded one by one or from a CSV or Parquet file, and looked up."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from governance.consent import EVERY_SUBJECT
from governance.redact.pseudonym import subject_ids
from headrace.app.context import AppContext
from headrace.app.master_key import Secrets
from proxy.clients.keys import PURPOSES
from trajectory.canonical import bytes_hash
from trajectory.errors import ConfigurationError
from trajectory.portable import PSEUDONYM

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


def pseudonyms_of(secrets: Secrets, tenant: str, subject: str) -> tuple[str, ...]:
    """Return all keyed pseudonyms that a person may have in the lake, the usual one first."""
    subject = subject.strip().strip("\ufeff")
    if not subject:
        raise ConfigurationError("name the person: an e-mail, a name or an end user's id.")
    if subject == EVERY_SUBJECT or PSEUDONYM.fullmatch(subject):
        return (subject,)
    return subject_ids(secrets.derive(b"pseudonym"), tenant, subject)


def is_unknown_tenant(app: AppContext, tenant: str) -> bool:
    """Whether the lake holds no exchange of this tenant: perhaps its name is misspelt."""
    query = "SELECT 1 FROM exchanges WHERE tenant_id = ? LIMIT 1"
    return not app.lake.query(query, parameters=[tenant]).num_rows


def record_consent(
    app: AppContext,
    tenant: str,
    subject: str,
    purposes: Sequence[str],
    *,
    granted: bool,
    actor: str,
    reference: str | None,
) -> str:
    """Record that a person agreed or no longer agrees; return the person's usual pseudonym.

    Raises:
        ConfigurationError: a purpose is unknown, or the person has no name.
    """
    unknown = sorted(set(purposes) - set(PURPOSES))
    if unknown:
        raise ConfigurationError(f"unknown purpose {unknown[0]!r}. Valid: {', '.join(PURPOSES)}.")
    pseudonyms = pseudonyms_of(app.secrets, tenant, subject)
    now = _later(app, tenant, pseudonyms)
    app.audit.append(
        actor=actor,
        action="consent.granted" if granted else "consent.withdrawn",
        subject=",".join(pseudonyms),
        detail={"tenant": tenant, "purposes": list(purposes), "reference": reference},
    )
    rows = [
        ConsentRow(one, name, granted, now, reference) for name in purposes for one in pseudonyms
    ]
    app.lake.append_rows("consents", [_row(one, tenant, "cli") for one in rows])
    return pseudonyms[0]


def import_consents(
    app: AppContext, file: Path, tenant: str, *, actor: str, dry_run: bool
) -> dict[str, int]:
    """Record all grants and withdrawals of a file, or only check them; return how many there are.

    Raises:
        ConfigurationError: the file is not as :func:`read_consents` needs it; nothing was recorded.
    """
    moment = datetime.now(UTC)
    data = _bytes_of(
        file
    )  # once: a pipe has them no second time, and another file may take its place
    said = read_consents(file, data, now=moment)
    whom = {row.subject: pseudonyms_of(app.secrets, tenant, row.subject) for row in said}
    later = _later(app, tenant, [one for each in whom.values() for one in each])
    said = [row._replace(recorded_at=later) if row.recorded_at == moment else row for row in said]
    counts = {
        "subjects": len({pseudonyms[0] for pseudonyms in whom.values()}),
        "granted": sum(row.granted for row in said),
        "withdrawn": sum(not row.granted for row in said),
    }
    if said and not dry_run:
        app.audit.append(
            actor=actor,
            action="consent.imported",
            subject=bytes_hash(data),
            detail={"tenant": tenant, **counts},
        )
        rows = [row._replace(subject=one) for row in said for one in whom[row.subject]]
        app.lake.append_rows("consents", [_row(one, tenant, "import") for one in rows])
    return counts


def _later(app: AppContext, tenant: str, pseudonyms: Sequence[str]) -> datetime:
    """Return now, or a moment behind all that is recorded of these people where the clock was set back.

    Else a withdrawal would count as older than the grant that it takes back.
    """
    entries = app.lake.consents().entries(tenant, pseudonyms)
    said = (one.recorded_at for one in entries if one.subject in {*pseudonyms})
    return max([datetime.now(UTC), *(one + timedelta(microseconds=1) for one in said)])


def _row(row: ConsentRow, tenant: str, source: str) -> dict[str, Any]:
    return {"tenant_id": tenant, "source": source, **row._asdict()}


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"{path}: cannot be read ({type(error).__name__}).")


def read_consents(path: Path, data: bytes, *, now: datetime) -> list[ConsentRow]:
    """Return the rows of a file's bytes with the columns subject, purpose, granted [recorded_at, reference].

    ``purpose`` may be ``all``. A time without a zone is UTC; without a time, the row counts from now.

    Raises:
        ConfigurationError: a column is missing, or a value is none; names the line, not the person.
    """
    rows: list[ConsentRow] = []
    for number, said in _lines(path, data):
        subject = _subject(said.get("subject"), f"{path.name}:{number}")
        purpose = str(said.get("purpose") or "").strip()
        if None in said:
            raise ConfigurationError(
                f"{path.name}:{number}: more values than columns; put values with a comma in quotes."
            )
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


def _lines(path: Path, data: bytes) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            table = pq.read_table(io.BytesIO(data))
            _check(path, table.column_names)
            yield from enumerate(table.to_pylist(), start=1)
            return
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""))
        _check(path, reader.fieldnames or ())
        yield from enumerate(reader, start=2)
    except ConfigurationError:
        raise
    except (OSError, ValueError, csv.Error) as error:
        raise _unreadable(path, error) from None


def _check(path: Path, names: Any) -> None:
    missing = [name for name in _COLUMNS[:3] if name not in names]
    strange = [name for name in names if name not in _COLUMNS]
    twice = [name for name in names if [*names].count(name) > 1]
    for what, some in (("no column", missing), ("unknown column", strange), ("two columns", twice)):
        if some:
            valid = f"Valid: {', '.join(_COLUMNS)}."
            raise ConfigurationError(f"{path.name}: {what} {some[0]!r}. {valid}")


def _subject(value: Any, where: str) -> str:
    """Return the person: a value of another kind, a fraction say, would be taken for somebody else."""
    if not isinstance(value, str | int | None) or isinstance(value, bool):
        raise ConfigurationError(f"{where}: subject must be text or a whole number.")
    if not (subject := str(value or "").strip()):
        raise ConfigurationError(f"{where}: subject is empty.")
    return subject


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
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # in the year 1, some zones have times before all time
        raise ConfigurationError(f"{where}: recorded_at is no ISO 8601 time.") from None
    if moment > now:
        raise ConfigurationError(f"{where}: recorded_at lies in the future.")
    return moment
