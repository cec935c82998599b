"""The keys of an installation: the master key, and those derived from it or kept beside it.

Keys are derived by HKDF-SHA256 (RFC 5869).
"""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from headrace.app.home import Home
from trajectory.errors import ConfigurationError
from trajectory.files import locked, make_folders, replace_file

if TYPE_CHECKING:
    from governance.redact.subject_keys import FileSubjectKeys

_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Secrets:
    """Derives one key per use, so that no two uses share a key."""

    _master: bytes = field(repr=False)

    def derive(self, use: bytes) -> bytes:
        """Return the 32-byte key for ``use`` (``b"spool"``, ``b"pseudonym"``, …)."""
        return HKDF(
            algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=b"headrace/" + use
        ).derive(self._master)


def key_is_there(folder: Path) -> bool:
    """Tell whether there is a master key, in the environment or in ``folder``."""
    return bool(os.environ.get("HEADRACE_MASTER_KEY")) or (folder / "master.key").exists()


def load_secrets(folder: Path, *, create: bool = False) -> Secrets:
    """Read the master key from ``HEADRACE_MASTER_KEY`` or ``folder/master.key``.

    Args:
        folder: the home's secrets folder.
        create: make a new key when there is none; never replaces one that exists.

    Raises:
        ConfigurationError: there is no key, it is malformed, or others could read it.
    """
    from_environment = os.environ.get("HEADRACE_MASTER_KEY")
    if from_environment:
        return Secrets(_parse(from_environment, "environment variable HEADRACE_MASTER_KEY"))
    path = folder / "master.key"
    if not path.exists():
        if not create:
            raise ConfigurationError(
                f"no master key at {path}. Run `headrace up` once to make one, "
                "or set HEADRACE_MASTER_KEY to 64 hexadecimal digits."
            )
        _write_new(path)
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise ConfigurationError(f"{path} can be read by others. Run: chmod 600 {path}")
    return Secrets(_parse(path.read_text(encoding="ascii", errors="replace"), str(path)))


def _write_new(path: Path) -> None:
    make_folders(path.parent, mode=0o700)
    with locked(path.with_suffix(".lock"), wait=True):
        if not path.exists():
            replace_file(path, f"{os.urandom(_KEY_BYTES).hex()}\n".encode())


def _parse(text: str, where: str) -> bytes:
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise ConfigurationError(f"{where} must hold {2 * _KEY_BYTES} hexadecimal digits.")
    return key


def subject_keys_of(home: Home, secrets: Secrets) -> "FileSubjectKeys":
    """Open the store, wrapped under a key derived from the master key."""
    from governance.redact.subject_keys import FileSubjectKeys

    return FileSubjectKeys(home.subject_keys, secrets.derive(b"subject-keys"))


def serving_key(home: Home) -> Path:
    """Return the file that holds the key; it is made where it is missing, or was left empty by a full disk."""
    path = home.secrets / "serving.key"
    if not _holds_a_key(path):
        make_folders(path.parent, mode=0o700)
        with locked(path.with_suffix(".lock"), wait=True):
            if not _holds_a_key(path):
                replace_file(path, f"{token_urlsafe(32)}\n".encode())
    return path


def _holds_a_key(path: Path) -> bool:
    return path.exists() and bool(path.read_text(encoding="ascii").strip())
