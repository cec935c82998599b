"""The keys that seal the spool: one seals, older ones still open what they sealed."""

import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from proxy.spool import layout
from proxy.spool.frames import SEGMENT_HEADER_BYTES, key_name
from trajectory.errors import ConfigurationError
from trajectory.files import delete_leftovers, locked, read_file, replace_file

KEY_BYTES = 32
_STILL_USED_SECONDS = 3600.0


class KeyRing:
    """The keys of a spool, newest first, from a file where there is one.

    The key that is given without a file always stays at the end: a spool that began without a
    file can still be read.
    """

    def __init__(
        self, key: bytes, *, older: Sequence[bytes] = (), file: Path | None = None
    ) -> None:
        self._given = (key, *older)
        self._file = file
        self.keys = self._read()

    @property
    def newest(self) -> bytes:
        """The key that seals."""
        return self.keys[0]

    def reload(self) -> bool:
        """Look at the file again; tell whether there are other keys than before.

        Raises:
            ConfigurationError: the file holds something else than keys.
        """
        fresh = self._read()
        changed, self.keys = fresh != self.keys, fresh
        return changed

    def _read(self) -> tuple[bytes, ...]:
        if self._file is None:
            return self._given
        try:
            text = read_file(self._file).decode("ascii")
        except FileNotFoundError:
            return self._given
        except (OSError, ValueError):
            raise ConfigurationError(f"{self._file}: cannot be read; restore it") from None
        return (*_parse(text, self._file), *self._given)


def _parse(text: str, path: Path) -> list[bytes]:
    try:
        keys = [bytes.fromhex(line) for line in text.split()]
    except ValueError:
        keys = []
    if not keys or any(len(key) != KEY_BYTES for key in keys):
        raise ConfigurationError(
            f"{path}: each line must hold {2 * KEY_BYTES} hexadecimal digits, the newest key first"
        )
    return keys


def rotate(file: Path, spool: Path) -> int:
    """Put a new key first into the file; return how many older ones stay.

    A running gateway seals with it within half a second. Older keys stay as long as a segment
    sealed under them is on the disk; the newest of them stays in any case, and all do while the last
    rotation is so recent that a gateway which stood still may go on with one of them.

    Raises:
        ConfigurationError: the file holds something else than keys.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(file.with_name(f"{file.name}.lock"), wait=True):
        keys = _parse(file.read_text("ascii"), file) if file.exists() else []
        recent = bool(keys) and time.time() - file.stat().st_mtime < _STILL_USED_SECONDS
        used = _names_in_use(spool)
        kept = [key for at, key in enumerate(keys) if at == 0 or recent or key_name(key) in used]
        lines = [key.hex() + "\n" for key in (secrets.token_bytes(KEY_BYTES), *kept)]
        delete_leftovers(
            file.parent, file.name
        )  # keys that were to end with a rotation that was killed
        replace_file(file, "".join(lines).encode("ascii"))
        return len(kept)


def _names_in_use(spool: Path) -> set[bytes]:
    """Return the names of the keys under which segments on the disk are sealed."""
    found = set()
    for writer in layout.writers(spool):
        for number in layout.segments(spool / writer):
            path = layout.segment_path(spool / writer, number)
            try:
                with path.open("rb") as segment:
                    found.add(segment.read(SEGMENT_HEADER_BYTES)[24:32])
            except FileNotFoundError:
                continue
    return found
