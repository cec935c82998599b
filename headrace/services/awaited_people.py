"""Whom stored calls turned out to be of, while the consent service does not answer about them.

The lake knows people by pseudonyms alone, and the service by their ids. So the ids wait here, each sealed, until
there is an answer or the call is gone.
"""

import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from governance.consent import ConsentLookup, NoAnswerError, ask_about
from governance.redact.pseudonym import subject_id
from headrace.app.context import AppContext
from trajectory.assembly.result import PlacedPeople
from trajectory.sqlite_file import damage_told, open_shared, transaction

_MOST = 200
"""Calls that are looked at in one round."""
_NONCE_BYTES = 12
_LOCK_SECONDS = 10.0
_REMEDY = "move it away: the stored calls that wait for an answer then stay refused"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS awaited (
    place INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, step TEXT NOT NULL,
    sealed BLOB NOT NULL, UNIQUE (tenant, step)
);
"""
type _Step = tuple[str, str]
"""Tenant and step."""


class AwaitedPeople:
    """The file, the one that was asked about longest ago first.

    Promise: an answer that does not come stalls nothing. A round ends at the first question without one, and asks
    about that person last from then on.
    """

    def __init__(self, app: AppContext, consents: ConsentLookup) -> None:
        """Keep the people of an installation.

        Args:
            app: the installation.
            consents: asked about them, where it is an ``EndUserLookup``.
        """
        self._path: Path = app.home.awaited
        self._seal = AESGCM(app.secrets.derive(b"awaited people"))
        self._pseudonym_key = app.secrets.derive(b"pseudonym")
        self._known = app.lake.known_content()
        self._consents = consents

    def keep(self, people: Iterable[PlacedPeople]) -> None:
        """Keep these beside those who are kept already, but for whom a step was wrongly taken to belong to.

        Raises:
            IntegrityError: the file is damaged.
        """
        told = [*people]
        kept = self._kept((one.tenant_id, one.step_id) for one in told)
        joined = [_joined(one, kept) for one in told]
        if rows := [(one.tenant_id, one.step_id, self._sealed(one)) for one in joined]:
            self._change(
                "INSERT OR REPLACE INTO awaited (tenant, step, sealed) VALUES (?, ?, ?)", rows
            )

    def forget(self, steps: Iterable[_Step]) -> None:
        """Delete the people of these steps, where some are kept.

        Raises:
            IntegrityError: the file is damaged.
        """
        if self._path.exists() and (rows := [*steps]):
            self._change("DELETE FROM awaited WHERE tenant = ? AND step = ?", rows)

    def answered(self) -> list[PlacedPeople]:
        """Return some of those about whom the service answers now; what is stored no more is forgotten.

        Raises:
            IntegrityError: the file is damaged.
        """
        found = self._first()
        if not found:
            return []
        self._consents.refresh()
        answered: list[PlacedPeople] = []
        for one in found:
            try:
                self._ask(one)
            except NoAnswerError:
                self.keep(other for other in found if _is_about_same(one, other))
                break
            answered.append(one)
        return answered

    def _ask(self, one: PlacedPeople) -> None:
        named = partial(subject_id, self._pseudonym_key, one.tenant_id)
        ask_about(self._consents, one.tenant_id, one.people, named)

    def _kept(self, steps: Iterable[_Step]) -> dict[_Step, PlacedPeople]:
        """Return those who are kept for these steps, where some are."""
        if not self._path.exists():
            return {}
        found: dict[_Step, PlacedPeople] = {}
        with damage_told(self._path, _REMEDY), closing(self._open()) as file:
            for step in steps:
                row = file.execute(
                    "SELECT sealed FROM awaited WHERE tenant = ? AND step = ?", step
                ).fetchone()
                if row is not None and (one := self._opened(step, row[0])) is not None:
                    found[step] = one
        return found

    def _first(self) -> list[PlacedPeople]:
        """Return the people of the steps that come first, of those that are stored still."""
        if not self._path.exists():
            return []
        with damage_told(self._path, _REMEDY), closing(self._open()) as file:
            rows = file.execute(
                "SELECT tenant, step, sealed FROM awaited ORDER BY place LIMIT ?", (_MOST,)
            ).fetchall()
        asked: dict[str, set[str]] = defaultdict(set)
        for tenant, step, _ in rows:
            asked[tenant].add(step)
        stored = {
            (tenant, step)
            for tenant, steps in asked.items()
            for step in self._known.known_steps(tenant, steps)
        }
        found: list[PlacedPeople] = []
        gone: list[_Step] = []
        for tenant, step, sealed in rows:
            one = self._opened((tenant, step), sealed) if (tenant, step) in stored else None
            if one is None:
                gone.append((tenant, step))
            else:
                found.append(one)
        if gone:
            self.forget(gone)
        return found

    def _sealed(self, one: PlacedPeople) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        plain = json.dumps(asdict(one)).encode()
        return nonce + self._seal.encrypt(nonce, plain, _bound((one.tenant_id, one.step_id)))

    def _opened(self, step: _Step, sealed: bytes) -> PlacedPeople | None:
        """Return what is kept for a step; None where another key sealed it, or it was changed."""
        try:
            plain = self._seal.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _bound(step))
        except (InvalidTag, ValueError, TypeError):
            return None
        said = json.loads(plain)
        return PlacedPeople(
            **{**said, "also_named": tuple(said["also_named"]), "before": tuple(said["before"])}
        )

    def _change(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        with (
            damage_told(self._path, _REMEDY),
            closing(self._open()) as file,
            transaction(file),
        ):
            file.executemany(sql, rows)

    def _open(self) -> sqlite3.Connection:
        file = open_shared(self._path, _SCHEMA, seconds=_LOCK_SECONDS, synchronous="FULL")
        file.execute("PRAGMA secure_delete = ON")  # who is forgotten is gone from the file
        return file


def _joined(one: PlacedPeople, kept: Mapping[_Step, PlacedPeople]) -> PlacedPeople:
    """Return people of a step with those who are kept for it."""
    before = kept.get((one.tenant_id, one.step_id), one)
    names = dict.fromkeys(
        (*one.people, *(name for name in before.people if name not in one.before))
    )
    end_user = one.end_user or (before.end_user if before.end_user in names else None)
    return replace(
        one, end_user=end_user, also_named=tuple(name for name in names if name != end_user)
    )


def _is_about_same(one: PlacedPeople, other: PlacedPeople) -> bool:
    return one.tenant_id == other.tenant_id and not {*one.people}.isdisjoint(other.people)


def _bound(step: _Step) -> bytes:
    return json.dumps(step).encode()


__all__ = ["AwaitedPeople"]
