"""The authority: made once, complete or refused, never replaced."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from proxy.mitm.authority import (
    CERTIFICATE_FILE,
    KEY_FILE,
    ensure_authority,
    load_authority,
    system_roots,
)
from trajectory.errors import ConfigurationError


def test_it_is_made_once_and_then_loaded(tmp_path: Path) -> None:
    made = ensure_authority(tmp_path / "ca")
    again = ensure_authority(tmp_path / "ca")
    assert made.certificate == again.certificate
    assert isinstance(made.key.curve, ec.SECP256R1)
    assert (tmp_path / "ca" / "ca.key").stat().st_mode & 0o777 == 0o600


def test_those_who_come_first_at_once_have_the_same(tmp_path: Path) -> None:
    meet = Barrier(4)

    def serial_number(number: int) -> int:
        meet.wait()
        return ensure_authority(tmp_path / str(number)).certificate.serial_number

    with ThreadPoolExecutor(4) as threads:
        for number in range(20):
            assert len(set(threads.map(serial_number, [number] * 4))) == 1


def test_one_that_was_killed_while_it_was_made_is_finished(tmp_path: Path) -> None:
    other = ensure_authority(tmp_path / "other")
    (tmp_path / "ca").mkdir()
    # The key is written first; nobody can trust it before its certificate and its bundle are there.
    (tmp_path / "ca" / KEY_FILE).write_bytes((tmp_path / "other" / KEY_FILE).read_bytes())
    made = ensure_authority(tmp_path / "ca")
    assert made.key.private_numbers() == other.key.private_numbers()
    assert made.bundle_path.exists()
    assert load_authority(tmp_path / "ca").certificate == made.certificate


def test_a_disk_that_refuses_leaves_no_half_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("os.fsync", refuse)
        with pytest.raises(OSError, match="No space"):
            ensure_authority(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert ensure_authority(tmp_path).bundle_path.exists()


def test_the_bundle_holds_the_systems_roots_too(tmp_path: Path) -> None:
    authority = ensure_authority(tmp_path)
    bundle = authority.bundle_path.read_bytes()
    assert system_roots().rstrip() in bundle
    assert (authority.directory / CERTIFICATE_FILE).read_bytes() in bundle


@pytest.mark.parametrize("missing", ["ca.key", "ca.pem"])
def test_half_an_authority_is_refused(tmp_path: Path, missing: str) -> None:
    ensure_authority(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(ConfigurationError, match="missing beside the rest"):
        ensure_authority(tmp_path)
    assert not (tmp_path / missing).exists()


def test_a_foreign_key_is_refused(tmp_path: Path) -> None:
    ensure_authority(tmp_path / "one")
    ensure_authority(tmp_path / "two")
    (tmp_path / "one" / "ca.key").write_bytes((tmp_path / "two" / "ca.key").read_bytes())
    with pytest.raises(ConfigurationError, match="does not belong"):
        load_authority(tmp_path / "one")
