"""Entries of the audit log as lines of its file: written, read from any place, and sealed in a chain."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from governance.records import AuditRecord
from trajectory.canonical import JsonValue, content_hash
from trajectory.errors import IntegrityError

_BLOCK = 65536
GENESIS = "b2:" + "0" * 40
"""What the first entry names as the hash before it."""


@dataclass(frozen=True, slots=True)
class AuditHead:
    """The end of a log; noted elsewhere, it proves that nothing before it was cut off."""

    sequence: int
    """Entries so far."""
    entry_hash: str


@dataclass(frozen=True, slots=True)
class AuditPlace:
    """An entry of a log, and where its line ends in the file."""

    head: AuditHead
    offset: int


BEGINNING = AuditPlace(AuditHead(0, GENESIS), 0)
"""The place before the first entry."""


def head_of(record: AuditRecord) -> AuditHead:
    """Return the end of a log whose last entry this is."""
    return AuditHead(record.sequence, record.entry_hash)


def sealed(record: AuditRecord, key: bytes) -> AuditRecord:
    """Return an entry with its hash: keyed, over all of it and the hash before."""
    said = _as_json(record)
    said.pop("entry_hash")
    return AuditRecord(**{**asdict(record), "entry_hash": content_hash(said, key=key[:64])})


def line_of(record: AuditRecord) -> bytes:
    """Return an entry as its line."""
    return json.dumps(_as_json(record), ensure_ascii=False, sort_keys=True).encode() + b"\n"


def _as_json(record: AuditRecord) -> dict[str, JsonValue]:
    return {**asdict(record), "recorded_at": record.recorded_at.isoformat()}


def record_of(line: bytes, name: str, number: int | None = None) -> AuditRecord:
    """Return the entry of a line.

    Raises:
        IntegrityError: it is none; the text names the file, and the line where its number is known.
    """
    try:
        said = json.loads(line)
        return AuditRecord(**{**said, "recorded_at": datetime.fromisoformat(said["recorded_at"])})
    except (ValueError, TypeError, KeyError):
        where = name if number is None else f"{name}:{number}"
        raise IntegrityError(
            f"{where}: not an audit entry. The log is not intact; restore it from a backup."
        ) from None


def entries_after(path: Path, place: AuditPlace) -> Iterator[tuple[AuditRecord, int]]:
    """Yield the entries behind a place, unverified, each with where its line ends.

    A line without its end is none yet.

    Raises:
        IntegrityError: a line is not an entry.
    """
    if not path.exists():
        return
    offset = place.offset
    with path.open("rb") as file:
        file.seek(offset)
        for number, line in enumerate(file, start=place.head.sequence + 1):
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            yield record_of(line, path.name, number), offset


def latest_entries(path: Path, count: int, *, before: int | None = None) -> list[AuditRecord]:
    """Return the last entries of a file, unverified and in its order, by reading its end alone.

    Args:
        path: the file.
        count: how many at most.
        before: the place in the file behind which nothing counts; by default its end.

    Raises:
        IntegrityError: one of these lines is not an entry.
    """
    if not path.exists():
        return []
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = end = size if before is None else before
        tail = b""
        while start > 0 and tail.count(b"\n") <= count:
            start = max(0, start - _BLOCK)
            file.seek(start)
            tail = file.read(end - start)
    lines = tail.split(b"\n")[:-1]
    return [record_of(line, path.name) for line in lines[-count:]]
