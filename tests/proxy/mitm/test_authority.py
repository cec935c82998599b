"""The authority: made once, complete or refused, never replaced."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from proxy.mitm.authority import (
    CERTIFICATE_FILE,
    create_authority,
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
    with pytest.raises(ConfigurationError, match="never overwritten"):
        create_authority(tmp_path / "ca")


def test_the_bundle_holds_the_systems_roots_too(tmp_path: Path) -> None:
    authority = create_authority(tmp_path)
    bundle = authority.bundle_path.read_bytes()
    assert system_roots().rstrip() in bundle
    assert (authority.directory / CERTIFICATE_FILE).read_bytes() in bundle


@pytest.mark.parametrize("missing", ["ca.key", "ca.pem"])
def test_half_an_authority_is_refused(tmp_path: Path, missing: str) -> None:
    create_authority(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(ConfigurationError, match="missing beside the rest"):
        ensure_authority(tmp_path)
    assert not (tmp_path / missing).exists()


def test_a_foreign_key_is_refused(tmp_path: Path) -> None:
    create_authority(tmp_path / "one")
    create_authority(tmp_path / "two")
    (tmp_path / "one" / "ca.key").write_bytes((tmp_path / "two" / "ca.key").read_bytes())
    with pytest.raises(ConfigurationError, match="does not belong"):
        load_authority(tmp_path / "one")
