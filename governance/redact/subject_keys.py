"""One random key per data subject: pseudonyms and sealed values of a person hang on it alone.

Destroying a subject's key is crypto-shredding. What was made with it, in exports and backups too,
can neither be opened nor be computed again. That holds even for somebody who knows the person and the
master key. The store holds keyed pseudonyms and wrapped keys, never a value.
"""

import json
import os
import sqlite3
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from trajectory.errors import IntegrityError
from trajectory.sqlite_file import damage_told, make_lasting, transaction

KEY_BYTES = 32
_NONCE_BYTES = 12
_MOST_CACHED = 100_000
_OF_MANY = "SELECT subject, wrapped FROM json_each(?) CROSS JOIN subject_keys WHERE subject = value"


class SubjectKeys(Protocol):
    """The keys of data subjects. Not for several threads at once."""

    def begin(self) -> None:
        """Forget what another process has destroyed since the last look."""
        ...

    def expect(self, subjects: Iterable[str]) -> None:
        """Settle the keys of many subjects at once, for :meth:`key` to be asked for them next."""
        ...

    def key(self, subject: str) -> bytes:
        """Return the subject's key, a new random one when there is none; it is stored by then."""
        ...

    def known(self, subject: str) -> bytes | None:
        """Return the subject's key; None when there never was one, or it is destroyed."""
        ...

    def destroy(self, subjects: Iterable[str]) -> int:
        """Destroy keys for good; return how many there were."""
        ...


class MemorySubjectKeys:
    """Keys in memory; for tests and dry runs."""

    def __init__(self) -> None:
        """Start without a key."""
        self._keys: dict[str, bytes] = {}

    def begin(self) -> None:
        """Nothing to do."""

    def expect(self, subjects: Iterable[str]) -> None:
        """Nothing to do."""

    def key(self, subject: str) -> bytes:
        """See :class:`SubjectKeys`."""
        return self._keys.setdefault(subject, os.urandom(KEY_BYTES))

    def known(self, subject: str) -> bytes | None:
        """See :class:`SubjectKeys`."""
        return self._keys.get(subject)

    def destroy(self, subjects: Iterable[str]) -> int:
        """See :class:`SubjectKeys`."""
        return sum(self._keys.pop(subject, None) is not None for subject in subjects)


class FileSubjectKeys:
    """Keys in one SQLite file, wrapped with AES-GCM under a key of the installation.

    Promise: a destroyed key's bytes are overwritten in the file (``secure_delete``), no power cut brings it back,
    and a process that has the key in memory forgets it with its next :meth:`begin`. A key is on disk before
    anything is made with it. Two processes that name a new subject at once both get the first one's key.
    """

    def __init__(self, path: Path, wrapping_key: bytes) -> None:
        """Open the store at ``path``; it is made for the owner alone when it does not exist.

        Raises:
            IntegrityError: the file is damaged.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._wrap = AESGCM(wrapping_key)
        self._file = sqlite3.connect(
            path,
            isolation_level=None,
            timeout=30.0,
            # Whoever collects what is forgotten closes it, in whatever thread.
            check_same_thread=False,
        )
        path.chmod(0o600)
        self.close = weakref.finalize(self, self._file.close)
        """Closes the file; called at the latest when nobody holds the store any more."""
        self._told = partial(
            damage_told, path, "it holds the keys of people: restore it from a backup"
        )
        with self._told():
            make_lasting(self._file)
            self._file.execute("PRAGMA secure_delete = ON")
            self._file.execute(
                "CREATE TABLE IF NOT EXISTS subject_keys (subject TEXT PRIMARY KEY, wrapped BLOB NOT NULL)"
            )
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._seen = self._version()

    def expect(self, subjects: Iterable[str]) -> None:
        """See :class:`SubjectKeys`."""
        missing = self._looked_up([one for one in subjects if one not in self._cache])
        if not missing:
            return
        drawn = _random(KEY_BYTES, len(missing))
        nonces = _random(_NONCE_BYTES, len(missing))
        rows = [
            (subject, nonce + self._wrap.encrypt(nonce, key, subject.encode()))
            for subject, key, nonce in zip(missing, drawn, nonces, strict=True)
        ]
        with self._told(), transaction(self._file):
            self._file.executemany("INSERT OR IGNORE INTO subject_keys VALUES (?, ?)", rows)
        self._looked_up(missing)  # another process may have been first

    def key(self, subject: str) -> bytes:
        """See :class:`SubjectKeys`."""
        while (found := self.known(subject)) is None:
            self.expect([subject])
        return found

    def known(self, subject: str) -> bytes | None:
        """See :class:`SubjectKeys`.

        Raises:
            IntegrityError: the stored key does not open under this installation's key, or the file is damaged.
        """
        if subject in self._cache:
            self._cache.move_to_end(subject)
            return self._cache[subject]
        with self._told():
            row = self._file.execute(
                "SELECT wrapped FROM subject_keys WHERE subject = ?", (subject,)
            ).fetchone()
        if row is None:
            return None
        found = self._unwrapped(subject, row[0])
        self._remember(subject, found)
        return found

    def begin(self) -> None:
        """See :class:`SubjectKeys`."""
        version = self._version()
        if version != self._seen:
            self._cache.clear()
            self._seen = version

    def destroy(self, subjects: Iterable[str]) -> int:
        """See :class:`SubjectKeys`."""
        gone = 0
        with self._told(), transaction(self._file):
            for subject in subjects:
                self._cache.pop(subject, None)
                gone += self._file.execute(
                    "DELETE FROM subject_keys WHERE subject = ?", (subject,)
                ).rowcount
        return gone

    def _looked_up(self, subjects: list[str]) -> list[str]:
        """Remember the keys of those that have one; return the others."""
        with self._told():
            found = dict(self._file.execute(_OF_MANY, (json.dumps(subjects),)).fetchall())
        for subject, wrapped in found.items():
            self._remember(subject, self._unwrapped(subject, wrapped))
        return [one for one in subjects if one not in found]

    def _unwrapped(self, subject: str, wrapped: bytes) -> bytes:
        nonce, sealed = wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:]
        try:
            return self._wrap.decrypt(nonce, sealed, subject.encode())
        except InvalidTag:
            raise IntegrityError(
                "the store of subject keys does not belong to this master key, or was changed; "
                "restore both from the same backup."
            ) from None

    def _remember(self, subject: str, key: bytes) -> None:
        self._cache[subject] = key
        while len(self._cache) > _MOST_CACHED:
            self._cache.popitem(last=False)

    def _version(self) -> int:
        return int(self._file.execute("PRAGMA data_version").fetchone()[0])


def _random(size: int, count: int) -> list[bytes]:
    """Return so many random values of so many bytes."""
    drawn = os.urandom(size * count)
    return [drawn[at : at + size] for at in range(0, len(drawn), size)]
