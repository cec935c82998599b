"""Encrypted originals of quarantined exchanges, kept for ``govern.quarantine_days``.

A held exchange cannot be kept in clear, and its redaction is often what failed; so it is kept like
the spool keeps it, sealed with AES-GCM under a key of its own, and for a few days only. Release
writes it into the spool again: it is judged anew, under the policy that is in force then, and
nothing passes that policy would hold. What a legal hold is about stays as long as the hold.

An exchange may bring several calls: spans of an export, steps of a document, turns of a WebSocket. It is kept
whole and once, however many of them are held. A release of some writes all of it, and says which it releases.
"""

import base64
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headrace.app.home import Home
from headrace.app.master_key import Secrets
from headrace.govern.quarantine_notes import QuarantineNotes
from proxy.spool import SpoolWriter
from proxy.spool.exchanges import exchange_records
from trajectory.errors import IntegrityError
from trajectory.exchange import (
    ClientIdentity,
    Exchange,
    ExchangeOutcome,
    HttpRequest,
    HttpResponse,
    SpoolPosition,
    released_name,
)
from trajectory.files import delete_lastingly, delete_leftovers, make_folders, replace_file

CALLS_AT_ONCE = 500
"""Calls that one record of the spool may release: the head that names them has room for 64 KiB."""
_NONCE_BYTES = 12
_SUFFIX = ".sealed"


class QuarantineStore:
    """Sealed exchanges of quarantine cases, one file each, named by the exchange's id."""

    def __init__(self, folder: Path, key: bytes) -> None:
        """Keep them in ``folder``, sealed with ``key``."""
        self._folder = folder
        self._seal = AESGCM(key)
        self.notes = QuarantineNotes(folder, key)
        """What was told of the held calls beside their exchanges."""

    def keep(self, exchanges: Iterable[Exchange]) -> None:
        """Seal exchanges; the same one again replaces itself."""
        for exchange in exchanges:
            make_folders(self._folder, 0o700)
            nonce = os.urandom(_NONCE_BYTES)
            name = exchange.exchange_id
            sealed = nonce + self._seal.encrypt(nonce, _written(exchange), name.encode())
            replace_file(self._folder / f"{name}{_SUFFIX}", sealed)

    def names(self) -> frozenset[str]:
        """Return the ids of all exchanges that are kept."""
        return frozenset(path.stem for path in self._folder.glob(f"*{_SUFFIX}"))

    def size(self, exchange_id: str) -> int:
        """Return how many bytes one takes here, which are more than it takes in the spool; 0 when it is gone."""
        try:
            return (self._folder / f"{exchange_id}{_SUFFIX}").stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, exchange_id: str) -> Exchange | None:
        """Open one; None when it is gone.

        Raises:
            IntegrityError: the file was changed, or sealed under another key.
        """
        if exchange_id not in self.names():
            return None
        try:
            data = (self._folder / f"{exchange_id}{_SUFFIX}").read_bytes()
        except FileNotFoundError:  # another process dropped it meanwhile
            return None
        try:
            plain = self._seal.decrypt(
                data[:_NONCE_BYTES], data[_NONCE_BYTES:], exchange_id.encode()
            )
        except (InvalidTag, ValueError):  # the latter where it is shorter than any
            raise IntegrityError(
                f"held exchange {exchange_id} does not open: it was changed, or the master key was. "
                "Put its file back from a backup, or drop its case."
            ) from None
        return _read(json.loads(plain))

    def opened(self, exchange_id: str) -> Exchange | None:
        """Open one; None when it is gone, or cannot be opened."""
        try:
            return self.read(exchange_id)
        except IntegrityError:
            return None

    def drop(self, exchange_ids: Iterable[str]) -> int:
        """Delete what is kept of these; return how many there were. What a killed process left goes too."""
        delete_leftovers(self._folder)
        names = self.names() & set(exchange_ids)
        return delete_lastingly(self._folder / f"{name}{_SUFFIX}" for name in names)

    def expire(
        self,
        days: float,
        now: datetime | None = None,
        *,
        is_held: Callable[[Exchange | None], bool] = lambda _: False,
    ) -> int:
        """Delete what is older than so many days, with the notes on it; return how many exchanges.

        Args:
            days: the age.
            now: the moment to judge by.
            is_held: whether a legal hold keeps an exchange; None is one that cannot be opened.
        """
        limit = ((now or datetime.now(UTC)) - timedelta(days=days)).timestamp()
        old = [
            path.stem for path in self._folder.glob(f"*{_SUFFIX}") if path.stat().st_mtime < limit
        ]
        gone = [name for name in old if not is_held(self.opened(name))]
        dropped = self.drop(gone)
        self.notes.expire(self.names(), gone, limit)
        return dropped


def quarantine_of(home: Home, secrets: Secrets) -> QuarantineStore:
    """Return an installation's quarantine store, sealed under its own key."""
    return QuarantineStore(home.held, secrets.derive(b"quarantine"))


def kept_as(case: Mapping[str, Any]) -> str:
    """Return the name under which the exchange of a case is kept."""
    return str(case["part_of"] or case["exchange_id"])


def with_released(exchange: Exchange, calls: Collection[str]) -> Exchange:
    """Return an exchange of which only these calls are to be judged again.

    Args:
        exchange: as it was kept; of one that was released before, its calls may be held again.
        calls: their ids, ``CALLS_AT_ONCE`` at most.
    """
    known = exchange.released_calls or [(one, one) for one in sorted(calls)]
    return replace(
        exchange,
        released_of=exchange.released_of if exchange.released_calls else exchange.exchange_id,
        released_calls=tuple((first, released_name(now)) for first, now in known if now in calls),
    )


def write_again(writer: SpoolWriter, exchange: Exchange) -> str:
    """Write an exchange into the spool under a new id, its times as they were; return the id."""
    calls = "".join(now for _, now in exchange.released_calls)
    name = released_name(exchange.exchange_id + calls)
    released = replace(exchange, exchange_id=name, released_of=exchange.first_id)
    writer.append_all(exchange_records(released))
    return name


def _written(exchange: Exchange) -> bytes:
    def plain(value: object) -> str:
        if isinstance(value, bytes):
            return base64.b64encode(value).decode("ascii")
        if isinstance(value, datetime):
            return value.isoformat()
        raise TypeError(f"an exchange holds no {type(value).__name__}")

    return json.dumps(asdict(exchange), default=plain).encode("utf-8")


def _read(said: dict[str, Any]) -> Exchange:
    def when(value: str | None) -> datetime | None:
        return None if value is None else datetime.fromisoformat(value)

    request, response = said["request"], said["response"]
    return Exchange(
        exchange_id=said["exchange_id"],
        client=ClientIdentity(**{**said["client"], "purposes": tuple(said["client"]["purposes"])}),
        route=said["route"],
        mode=said["mode"],
        upstream=said["upstream"],
        started_at=datetime.fromisoformat(said["started_at"]),
        first_byte_at=when(said["first_byte_at"]),
        ended_at=when(said["ended_at"]),
        request=HttpRequest(**{**request, **_body_and_headers(request)}),
        response=HttpResponse(**{**response, **_body_and_headers(response)}) if response else None,
        outcome=ExchangeOutcome(said["outcome"]),
        position=SpoolPosition(**said["position"]),
        capture_note=said["capture_note"],
        served=said.get("served", ""),
        shadow_of=said.get("shadow_of", ""),
        artifacts=tuple(said.get("artifacts", ())),
        subjects=None if said.get("subjects") is None else tuple(said["subjects"]),
        released_of=said.get("released_of", ""),
        released_calls=tuple((first, now) for first, now in said.get("released_calls", ())),
    )


def _body_and_headers(message: dict[str, Any]) -> dict[str, Any]:
    headers = tuple((name, value) for name, value in message["headers"])
    return {"body": base64.b64decode(message["body"]), "headers": headers}
