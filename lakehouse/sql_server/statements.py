"""Prepared statements: text and bound values between a client's calls, for its key alone."""

import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

from lakehouse.errors import QueryError

_PER_KEY = 50
_IDLE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class PreparedStatement:
    """A statement that waits to be run."""

    key_id: str
    sql: str
    parameters: tuple[str, ...]
    """Names in the order of the client's columns."""
    schema: Any = None
    """The Arrow schema of the answer; None where values may still change it."""
    values: Any = None
    """A list for question marks, a mapping for names; None before values were bound."""
    used_at: float = 0.0


class Statements:
    """The prepared statements of a server; the oldest of a key gives way to its newest."""

    def __init__(self) -> None:
        self._held: OrderedDict[bytes, PreparedStatement] = OrderedDict()
        self._mutex = threading.Lock()

    def add(self, key_id: str, sql: str, parameters: tuple[str, ...], schema: Any = None) -> bytes:
        """Keep a statement and return its handle."""
        handle = secrets.token_bytes(16)
        now = time.monotonic()
        with self._mutex:
            own = [h for h, one in self._held.items() if one.key_id == key_id]
            for stale in own[: max(0, len(own) - _PER_KEY + 1)]:
                del self._held[stale]
            while self._held and now - next(iter(self._held.values())).used_at > _IDLE_SECONDS:
                self._held.popitem(last=False)
            self._held[handle] = PreparedStatement(key_id, sql, parameters, schema, used_at=now)
        return handle

    def get(self, key_id: str, handle: bytes) -> PreparedStatement:
        """Return a statement of this key.

        Raises:
            QueryError: it was closed, was given up for newer ones, or is another key's.
        """
        with self._mutex:
            found = self._held.get(handle)
            if found is None or found.key_id != key_id:
                raise QueryError("there is no such prepared statement (any more); prepare it again")
            self._held[handle] = found = replace(found, used_at=time.monotonic())
            self._held.move_to_end(handle)
        return found

    def bind(self, key_id: str, handle: bytes, values: list[Any]) -> None:
        """Set the values of a statement's parameters, in their order.

        Raises:
            QueryError: there are more or fewer of them than the statement has.
        """
        found = self.get(key_id, handle)
        if len(values) != len(found.parameters):
            raise QueryError(
                f"the statement has {len(found.parameters)} parameters, {len(values)} were bound"
            )
        positional = all(name.isdecimal() for name in found.parameters)
        bound: Any = values if positional else dict(zip(found.parameters, values, strict=True))
        with self._mutex:
            self._held[handle] = replace(found, values=bound)

    def close(self, key_id: str, handle: bytes) -> None:
        """Forget a statement; one that is not there is forgotten already."""
        with self._mutex:
            found = self._held.get(handle)
            if found is not None and found.key_id == key_id:
                del self._held[handle]
