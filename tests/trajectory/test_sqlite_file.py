"""SQLite files of several writers: opened at once, and after a disk that refuses."""

import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest

from trajectory.errors import IntegrityError
from trajectory.sqlite_file import damage_told, open_shared, transaction

SCHEMA = "CREATE TABLE IF NOT EXISTS counts (name TEXT PRIMARY KEY, used INTEGER NOT NULL);"


def add(file: sqlite3.Connection, *names: str) -> None:
    with transaction(file):
        for name in names:
            file.execute("INSERT INTO counts VALUES (?, 1)", (name,))


def test_a_new_file_is_opened_by_many_at_once(tmp_path: Path) -> None:
    meet = Barrier(4)

    def count(number: int) -> None:
        meet.wait()
        path = tmp_path / str(number) / "counts.sqlite"
        with closing(open_shared(path, SCHEMA, seconds=30, synchronous="OFF")) as file:
            file.execute(
                "INSERT INTO counts VALUES ('a', 1) ON CONFLICT DO UPDATE SET used = used + 1"
            )

    with ThreadPoolExecutor(4) as threads:
        for number in range(100):
            list(threads.map(count, [number] * 4))
    for number in range(100):
        path = tmp_path / str(number) / "counts.sqlite"
        with closing(sqlite3.connect(path)) as file:
            assert file.execute("SELECT used FROM counts").fetchall() == [(4,)]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_who_waits_too_long_is_told(tmp_path: Path) -> None:
    path = tmp_path / "counts.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            open_shared(path, SCHEMA, seconds=0.05, synchronous="FULL")


def test_a_full_disk_is_told_as_such_and_costs_nothing_later(tmp_path: Path) -> None:
    path = tmp_path / "counts.sqlite"
    with closing(open_shared(path, SCHEMA, seconds=1, synchronous="FULL")) as file:
        # What SQLite says of a full disk, it says of a file that may not grow.
        file.execute("PRAGMA max_page_count = 8")
        with pytest.raises(sqlite3.OperationalError, match="full"):
            add(file, *(str(number) * 2000 for number in range(100)))
        add(file, "a")
        assert file.execute("SELECT name FROM counts").fetchall() == [("a",)]


def test_what_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "counts.sqlite"
    with closing(open_shared(path, SCHEMA, seconds=1, synchronous="FULL")) as file:
        with pytest.raises(sqlite3.IntegrityError):
            add(file, "a", "a")
        assert file.execute("SELECT * FROM counts").fetchall() == []


def test_a_damaged_file_is_told_with_its_name_and_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "counts.sqlite"
    path.write_bytes(b"no database at all" * 40)
    told = r"counts\.sqlite is damaged .*; restore it"
    with pytest.raises(IntegrityError, match=told), damage_told(path, "restore it"):
        open_shared(path, SCHEMA, seconds=1, synchronous="FULL")


def test_a_file_that_others_hold_is_not_damaged(tmp_path: Path) -> None:
    path = tmp_path / "counts.sqlite"
    with closing(open_shared(path, SCHEMA, seconds=1, synchronous="FULL")) as file:
        with pytest.raises(sqlite3.IntegrityError), damage_told(path, "restore it"):
            add(file, "a", "a")
        with pytest.raises(sqlite3.OperationalError), damage_told(path, "restore it"):
            file.execute("SELECT nothing FROM nowhere")
