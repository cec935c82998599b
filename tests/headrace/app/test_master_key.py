"""The master key is made once, kept private, and gives one key per use."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.app.home import Home
from headrace.app.master_key import load_secrets, serving_key
from trajectory.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _no_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)


def test_a_missing_key_is_an_error_that_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="headrace up"):
        load_secrets(tmp_path)


def test_a_key_is_made_once_and_never_replaced(tmp_path: Path) -> None:
    first = load_secrets(tmp_path, create=True).derive(b"spool")
    assert load_secrets(tmp_path, create=True).derive(b"spool") == first


def test_each_use_has_its_own_key(tmp_path: Path) -> None:
    secrets = load_secrets(tmp_path, create=True)
    assert secrets.derive(b"spool") != secrets.derive(b"pseudonym")
    assert len(secrets.derive(b"spool")) == 32


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    load_secrets(tmp_path, create=True)
    (tmp_path / "master.key").chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        load_secrets(tmp_path)


@pytest.mark.parametrize("text", ["zz", "00" * 31, "00" * 33])
def test_a_malformed_key_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    monkeypatch.setenv("HEADRACE_MASTER_KEY", text)
    with pytest.raises(ConfigurationError, match="64 hexadecimal digits"):
        load_secrets(tmp_path)


def test_a_damaged_key_is_refused_and_stays(tmp_path: Path) -> None:
    load_secrets(tmp_path, create=True)
    (tmp_path / "master.key").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="64 hexadecimal digits"):
        load_secrets(tmp_path, create=True)
    assert (tmp_path / "master.key").read_bytes() == b"\xff\xfe\x00"


def test_the_key_does_not_show_in_a_repr(tmp_path: Path) -> None:
    secrets = load_secrets(tmp_path, create=True)
    assert (tmp_path / "master.key").read_text(encoding="ascii").strip()[:8] not in repr(secrets)


def test_the_serving_key_is_made_once_and_private(tmp_path: Path) -> None:
    home = Home(tmp_path)
    path = serving_key(home)
    first = path.read_text(encoding="ascii")
    assert len(first.strip()) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert serving_key(home).read_text(encoding="ascii") == first


@pytest.mark.parametrize("left", [b"", b"\n"])
def test_an_empty_serving_key_which_a_full_disk_left_is_made_anew(
    tmp_path: Path, left: bytes
) -> None:
    home = Home(tmp_path)
    serving_key(home).write_bytes(left)
    assert len(serving_key(home).read_text(encoding="ascii").strip()) >= 32


def test_processes_that_begin_at_once_have_one_serving_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        said = [*pool.map(lambda _: serving_key(Home(tmp_path)).read_text(), range(32))]
    assert len({*said}) == 1
    assert said[0].strip()
