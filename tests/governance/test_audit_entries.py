"""Entries of the audit log as lines: read from any place and from the end, however the lines lie in blocks."""

from pathlib import Path

import pytest

from governance.audit import AuditLog
from governance.audit_entries import BEGINNING, AuditPlace, entries_after, head_of, latest_entries

KEY = b"a" * 32


def filled(path: Path, count: int, size: int = 10) -> AuditLog:
    log = AuditLog(path, KEY)
    for number in range(count):
        log.append(actor="me", action="x", subject=str(number), detail={"said": "a" * size})
    return log


@pytest.mark.parametrize("size", [10, 40_000, 70_000])
def test_the_end_is_read_as_the_whole_is(tmp_path: Path, size: int) -> None:
    path = tmp_path / "audit.jsonl"
    assert latest_entries(path, 3) == []
    entries = list(filled(path, 5, size).entries())
    for count in (1, 3, 5, 9):
        assert latest_entries(path, count) == entries[-count:]
    with path.open("ab") as file:
        file.write(b'{"torn')
    assert latest_entries(path, 2) == entries[-2:]


def test_entries_are_read_from_any_place(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    filled(path, 4)
    found = list(entries_after(path, BEGINNING))
    assert found[-1][1] == path.stat().st_size
    for number, (record, offset) in enumerate(found, start=1):
        place = AuditPlace(head_of(record), offset)
        assert list(entries_after(path, place)) == found[number:]
        assert latest_entries(path, 1, before=offset) == [record]
