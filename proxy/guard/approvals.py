"""Calls that wait for a person, in one SQLite file: they outlive the gateway that asked.

What a person is asked is sealed, and gone from the file once they have answered. An approval is good for one
call of the same key with the same arguments, once.
"""

import json
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.guard.rules import ActionRule, RequestedCall
from trajectory.canonical import JsonObject, JsonValue, canonical_json
from trajectory.errors import ConfigurationError
from trajectory.sqlite_file import damage_told, open_shared, transaction

_SCHEMA = """
CREATE TABLE IF NOT EXISTS approvals (
    approval_id TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, status TEXT NOT NULL,
    created REAL NOT NULL, expires REAL NOT NULL, tenant TEXT NOT NULL, key_id TEXT NOT NULL,
    route TEXT NOT NULL, rule TEXT NOT NULL, severity TEXT NOT NULL, step_id TEXT NOT NULL,
    sealed BLOB, decided_at REAL, decided_by TEXT, reason TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_fingerprint ON approvals (fingerprint, status);
"""
_COLUMNS = (
    "approval_id, status, created, expires, tenant, key_id, route, rule, severity, step_id, "
    "decided_at, decided_by, reason"
)
_NONCE_BYTES = 12
_GRANT_SECONDS = 600.0
"""For so long an answer stays good when nobody waits for it any more; a denial, too."""
_KEPT_SECONDS = 30 * 86400.0
BY_CLIENT = "client:"
"""Who decided, where that is the user of a client; its key's id follows."""
STATUSES = ("pending", "approved", "used", "denied", "expired")

type Audit = Callable[[str, str, str, JsonObject], None]
"""Takes who did what to which approval, and what else is known of it."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A call that waits for a person, or has been decided."""

    approval_id: str
    status: str
    """pending | approved | used | denied | expired"""
    created: float
    expires: float
    tenant: str
    key_id: str
    route: str
    rule: str
    severity: str
    step_id: str
    """The call that asked first."""
    decided_at: float | None
    decided_by: str | None
    reason: str | None

    @property
    def is_by_client(self) -> bool:
        """Whether the user of a client decided it."""
        return (self.decided_by or "").startswith(BY_CLIENT)

    @property
    def described(self) -> JsonObject:
        """What the audit log says of it beside its id."""
        return {"rule": self.rule, "route": self.route, "tenant_id": self.tenant}


class Approvals:
    """The file; each call opens it anew, so that any thread and process may."""

    def __init__(self, path: Path, key: bytes, clock: Callable[[], float] = time.time) -> None:
        """Keep them in ``path``, what is asked sealed with ``key``."""
        self.path = path
        """Where the file is, or will be."""
        self._seal = AESGCM(key)
        self._key = key
        self._clock = clock

    def ask(
        self,
        call: RequestedCall,
        rule: ActionRule,
        *,
        key_id: str,
        route: str,
        step_id: str,
        session: str = "",
        taken: Collection[str] = (),
    ) -> Approval:
        """Return the row of a held call: the one that the same call has already, or a new one.

        Args:
            call: that waits.
            rule: that holds it.
            key_id: of its client.
            route: that it takes.
            step_id: that it is.
            session: of the client whose user may answer; the answer is good for no other.
            taken: approvals that calls beside this one have.
        """
        name = self.fingerprint(
            [call.tenant, key_id, route, call.tool, call.arguments, *([session] if session else [])]
        )
        now = self._clock()
        with self.writing() as file:
            self._expire(file, now)
            row = file.execute(
                f"SELECT {_COLUMNS} FROM approvals WHERE fingerprint = ? "  # noqa: S608
                "AND status IN ('approved', 'denied', 'pending') AND expires > ? "
                "AND NOT (status = 'approved' AND approval_id IN (SELECT value FROM json_each(?))) "
                "ORDER BY status, created LIMIT 1",
                (name, now, json.dumps([*taken])),
            ).fetchone()
            if row is not None:
                return Approval(*row)
            approval_id = secrets.token_hex(8)
            asked: JsonObject = {"tool": call.tool, "arguments": call.arguments}
            sealed = self.seal(canonical_json(asked), approval_id)
            file.execute(
                "INSERT INTO approvals (approval_id, fingerprint, status, created, expires, tenant, "
                "key_id, route, rule, severity, step_id, sealed) "
                "VALUES (?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(approval_id, name, now, now + rule.seconds, call.tenant, key_id, route),
                    *(rule.name, rule.severity.value, step_id, sealed),
                ),
            )
        return self.get(approval_id)

    def fingerprint(self, parts: JsonValue) -> str:
        """Return the keyed hash by which a row is found again."""
        return blake2b(canonical_json(parts), digest_size=20, key=self._key).hexdigest()

    def seal(self, data: bytes, name: str) -> bytes:
        """Return what may be written under a name."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._seal.encrypt(nonce, data, name.encode())

    def unseal(self, sealed: bytes, name: str) -> bytes:
        """Return what was sealed under a name.

        Raises:
            ConfigurationError: it was sealed with another key.
        """
        try:
            return self._seal.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], name.encode())
        except InvalidTag:
            raise ConfigurationError(
                f"{name} was sealed with another master key; it cannot be read."
            ) from None

    def claim(self, *approval_ids: str) -> bool:
        """Use approvals, all of them or none; True for one caller alone."""
        good = "approval_id IN (SELECT value FROM json_each(?)) AND status = 'approved' AND expires > ?"
        asked = json.dumps(approval_ids), self._clock()
        with self.writing() as file:
            found = file.execute(f"SELECT count(*) FROM approvals WHERE {good}", asked)  # noqa: S608
            if found.fetchone()[0] < len(approval_ids):
                return False
            file.execute(f"UPDATE approvals SET status = 'used' WHERE {good}", asked)  # noqa: S608
            return True

    def decide(
        self,
        approval_id: str,
        *,
        approve: bool,
        who: str,
        reason: str = "",
        audit: Audit | None = None,
    ) -> Approval:
        """Approve or deny a call that waits.

        Args:
            approval_id: of the call.
            approve: or deny.
            who: decides.
            reason: why.
            audit: is told before it counts: what cannot be written down is not decided.

        Raises:
            ConfigurationError: there is none of this id, or it does not wait any more.
        """
        now = self._clock()
        with self.writing() as file:
            self._expire(file, now)
            row = file.execute(
                "UPDATE approvals SET status = ?, decided_at = ?, decided_by = ?, reason = ?, "  # noqa: S608
                "sealed = NULL, expires = max(expires, ?) "
                f"WHERE approval_id = ? AND status = 'pending' RETURNING {_COLUMNS}",
                (
                    *("approved" if approve else "denied", now, who, reason or None),
                    *(now + _GRANT_SECONDS, approval_id),
                ),
            ).fetchone()
            decided = None if row is None else Approval(*row)
            if decided is not None and audit is not None:
                audit(who, f"approval.{decided.status}", approval_id, decided.described)
        if decided is None:
            status = self.get(approval_id).status
            raise ConfigurationError(f"{approval_id} does not wait any more: it is {status}.")
        return decided

    def get(self, approval_id: str) -> Approval:
        """Return a row.

        Raises:
            ConfigurationError: there is none of this id.
        """
        rows = self._rows("WHERE approval_id = ?", (approval_id,))
        if not rows:
            raise ConfigurationError(
                f"no approval {approval_id!r}; `headrace approvals list` shows them."
            )
        return rows[0]

    def expire(self) -> None:
        """Let go of what calls say whose time to be decided is over."""
        if self.path.exists():
            with self.writing() as file:
                self._expire(file, self._clock())

    def list(self, status: str = "pending", tenant: str | None = None) -> Sequence[Approval]:
        """Return rows of a status, or ``all``; the latest first."""
        self.expire()
        return self._rows(
            "WHERE (?1 = 'all' OR status = ?1) AND (?2 IS NULL OR tenant = ?2) "
            "ORDER BY created DESC, approval_id",
            (status, tenant),
        )

    def asked(self, approval_id: str) -> dict[str, Any] | None:
        """Return tool and arguments of a call that waits; None once it is decided."""
        with self._opened() as file:
            row = file.execute(
                "SELECT sealed FROM approvals WHERE approval_id = ?", (approval_id,)
            ).fetchone()
        if row is None or row[0] is None:
            return None
        found: dict[str, Any] = json.loads(self.unseal(row[0], approval_id))
        return found

    def _expire(self, file: sqlite3.Connection, now: float) -> None:
        file.execute(
            "UPDATE approvals SET status = 'expired', sealed = NULL "
            "WHERE status IN ('pending', 'approved') AND expires <= ?",
            (now,),
        )
        file.execute("DELETE FROM approvals WHERE expires <= ?", (now - _KEPT_SECONDS,))

    def _rows(self, where: str, parameters: tuple[Any, ...]) -> Sequence[Approval]:
        if not self.path.exists():
            return ()
        with self._opened() as file:
            found = file.execute(f"SELECT {_COLUMNS} FROM approvals {where}", parameters)  # noqa: S608
            return [Approval(*row) for row in found]

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction."""
        with self._opened() as file, transaction(file):
            yield file

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        remedy = "calls that wait for a person are refused until you move it away"
        with (
            damage_told(self.path, remedy),
            closing(open_shared(self.path, _SCHEMA, seconds=10.0, synchronous="FULL")) as file,
        ):
            file.execute("PRAGMA secure_delete = ON")  # what was sealed is gone from the file
            yield file
