"""Keys of the spool: rotated without a loss, forgotten only when nothing is sealed under them."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proxy.spool import Cursor, SpoolReader, SpoolWriter
from proxy.spool.frames import UnknownKeyError
from proxy.spool.keys import KeyRing, rotate
from tests.proxy.spool.scripts import KEY, ExchangeScript
from tests.support.killed import killed_while_replacing
from trajectory.errors import ConfigurationError
from trajectory.exchange import Exchange


def test_a_rotation_under_way_loses_nothing(tmp_path: Path) -> None:
    file, spool = tmp_path / "spool.key", tmp_path / "spool"
    ring = KeyRing(KEY, file=file)
    assert ring.newest == KEY
    reader, cursor, found = SpoolReader(spool, KEY, key_file=file), Cursor(), []

    def take() -> None:
        nonlocal cursor
        batch = reader.take(cursor)
        cursor = batch.cursor
        found.extend(int(r.exchange_id, 16) for r in batch.records if isinstance(r, Exchange))

    with SpoolWriter(spool, ring.newest) as writer:
        for number in range(1, 4):
            ExchangeScript(writer, 10 * number).whole()
            unfinished = ExchangeScript(writer, 10 * number + 1)
            unfinished.head()
            take()
            rotate(file, spool)
            assert ring.reload()
            writer.use_key(ring.newest)
            unfinished.request(b"x")
            unfinished.answer()
            unfinished.response(b"y")
            unfinished.end()
        take()
    assert found == [10, 11, 20, 21, 30, 31]
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UnknownKeyError):
        SpoolReader(spool, KEY).take(Cursor())


def test_keys_that_seal_nothing_are_forgotten(tmp_path: Path) -> None:
    file, spool = tmp_path / "spool.key", tmp_path / "spool"
    assert [_later(file, spool) for _ in range(4)] == [0, 1, 1, 1]
    with SpoolWriter(spool, KeyRing(KEY, file=file).newest):
        assert [_later(file, spool) for _ in range(3)] == [1, 2, 2]


def _later(file: Path, spool: Path) -> int:
    """Rotate when the rotation before is a day ago."""
    if file.exists():
        os.utime(file, (0.0, file.stat().st_mtime - 86_400))
    return rotate(file, spool)


def test_a_gateway_that_has_not_seen_two_rotations_loses_nothing(tmp_path: Path) -> None:
    file, spool = tmp_path / "spool.key", tmp_path / "spool"
    rotate(file, spool)
    ring = KeyRing(KEY, file=file)
    rotate(file, spool)
    rotate(file, spool)
    with SpoolWriter(spool, ring.newest) as writer:
        ExchangeScript(writer, 1).whole()
    assert len(SpoolReader(spool, KEY, key_file=file).take(Cursor()).records) == 1


def test_rotations_at_once_are_one_after_the_other(tmp_path: Path) -> None:
    file = tmp_path / "spool.key"
    with ThreadPoolExecutor(8) as at_once:
        assert sorted(at_once.map(lambda _: rotate(file, tmp_path), range(16))) == [*range(16)]


def test_a_rotation_that_was_killed_leaves_no_keys_behind_the_next(tmp_path: Path) -> None:
    file = tmp_path / "spool.key"
    rotate(file, tmp_path / "spool")
    left = killed_while_replacing(file, "ab" * 32)
    others = killed_while_replacing(tmp_path / "client.key", "hr_1")
    rotate(file, tmp_path / "spool")
    assert not left.exists()
    assert others.exists()


@pytest.mark.parametrize("text", ["", "nonsense", "ab" * 31])
def test_what_is_no_key_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "spool.key").write_text(text)
    with pytest.raises(ConfigurationError, match="hexadecimal"):
        KeyRing(KEY, file=tmp_path / "spool.key")
