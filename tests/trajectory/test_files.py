"""Files that are replaced as a whole."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.killed import killed_while_replacing
from trajectory.files import READABLE, delete_leftovers, read_file, replace_file, replacing


def test_the_new_bytes_and_the_mode_stand_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "note"
    before = os.umask(0o077)
    try:
        replace_file(path, b"old")
        assert path.stat().st_mode & 0o777 == 0o600
        replace_file(path, b"new", READABLE)
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o644


def test_what_a_killed_process_left_goes_and_what_a_living_one_writes_stays(
    tmp_path: Path,
) -> None:
    path = tmp_path / "note"
    replace_file(path, b"old")
    left = [killed_while_replacing(tmp_path / name, "new") for name in ("note", "other")]
    with replacing(path) as file:
        file.write(b"newer")
        assert delete_leftovers(tmp_path, "note") == 1
        assert [one.exists() for one in left] == [False, True]
        assert delete_leftovers(tmp_path) == 1
    assert path.read_bytes() == b"newer"
    assert [*tmp_path.iterdir()] == [path]
    assert delete_leftovers(tmp_path / "nowhere") == 0


def test_what_was_left_goes_though_another_process_has_the_number_since(tmp_path: Path) -> None:
    """In a container every start has the same number."""
    left = tmp_path / f".note.0a1b2c3d.{os.getpid()}.tmp"
    left.write_bytes(b"half")
    assert delete_leftovers(tmp_path) == 0
    os.utime(left, (1.7e9, 1.7e9))
    assert delete_leftovers(tmp_path) == 1
    assert not left.exists()


def test_an_error_on_the_way_leaves_the_old_bytes_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "note"
    replace_file(path, b"old")

    def fail_half_way() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"note": b"old"}


def test_a_process_that_is_killed_on_the_way_leaves_the_old_bytes(tmp_path: Path) -> None:
    path = tmp_path / "note"
    replace_file(path, b"old")
    code = (
        "import os, pathlib, signal, sys\n"
        "from trajectory.files import replacing\n"
        "with replacing(pathlib.Path(sys.argv[1])) as file:\n"
        "    file.write(b'half')\n"
        "    file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_file_is_not_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "settings"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case _:
            path.mkdir()
    with pytest.raises(OSError, match="no file"):
        read_file(path)


def test_an_error_names_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "nosuch" / "a", tmp_path / "file" / "a", tmp_path / "folder"):
        with pytest.raises(OSError, match=path.name) as caught:
            replace_file(path, b"text")
        assert (caught.value.filename, caught.value.filename2) == (str(path), None)


def test_an_error_of_another_file_keeps_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, replacing(tmp_path / "out"):
        (tmp_path / "other").read_bytes()
    assert Path(caught.value.filename) == tmp_path / "other"
    assert not any(tmp_path.iterdir())
