"""Trusted SQL of this process over what one tenant may see: a session for each, kept from query to query.

The wall between tenants is the list of files: a session of a tenant has no other tenant's, and none of
the tables that have no tenants.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehouse.read.connection import connect
from lakehouse.read.dependencies import named
from lakehouse.read.session import Session
from lakehouse.sandbox.deadline import NotListeningError

if TYPE_CHECKING:
    from lakehouse.lake import Lake

_MOST = 4
"""Sessions at once; each keeps what it has read of the files' metadata."""
_LEFT_BEHIND = 2_000
"""Files of the past that a session may remember; then a new one begins."""


@dataclass(slots=True)
class _KeptSession:
    mutex: threading.Lock = field(default_factory=threading.Lock)
    session: Session | None = None


class TenantSessions:
    """Answers statements of our own; those of one tenant one at a time. Safe for threads."""

    def __init__(self, lake: "Lake", *, memory_mib: int) -> None:
        """Read ``lake``; a session may use so much memory, and no disk."""
        self._lake = lake
        self._settings = {"memory_limit": f"{memory_mib}MiB", "temp_directory": ""}
        self._mutex = threading.Lock()
        self._places: OrderedDict[tuple[str | None, frozenset[str]], _KeptSession] = OrderedDict()

    def query(
        self,
        tenant: str | None,
        hidden: frozenset[str],
        sql: str,
        parameters: Mapping[str, Any] | None,
        *,
        seconds: float,
    ) -> pa.Table:
        """Return the rows of one statement over the files that a tenant may see.

        Args:
            tenant: whose; None for every tenant's.
            hidden: tables that do not exist.
            sql: the statement; it is trusted.
            parameters: its values.
            seconds: how long it may take.

        Raises:
            QueryError: the SQL is wrong, or asks for a table that is not there.
            QueryTimeoutError: it took longer than ``seconds``.
            RetryableError: memory ran out, or files went away while reading.
        """
        place = self._place((tenant, hidden))
        with place.mutex:
            session = place.session
            if session is not None and session.left_behind > _LEFT_BEHIND:
                session.close()
                session = None
            if session is None:
                snapshot = self._lake.snapshot_for(tenant, hidden=hidden)
                place.session = session = Session(snapshot, connection=connect(self._settings))
            else:
                wanted = self._lake.snapshot_for(tenant, hidden=hidden, names=named(sql))
                session.bind(wanted)
            try:
                return session.query(sql, parameters, seconds=seconds)
            except NotListeningError:
                place.session = None
                raise

    def close(self) -> None:
        """Give memory back; the next query takes it again."""
        with self._mutex:
            places, self._places = self._places, OrderedDict()
        for place in places.values():
            self._end(place)

    def _place(self, key: tuple[str | None, frozenset[str]]) -> _KeptSession:
        with self._mutex:
            place = self._places.setdefault(key, _KeptSession())
            self._places.move_to_end(key)
            old = [self._places.popitem(last=False)[1] for _ in range(len(self._places) - _MOST)]
        for one in old:
            self._end(one)
        return place

    @staticmethod
    def _end(place: _KeptSession) -> None:
        with place.mutex:
            if place.session is not None:
                place.session.close()
                place.session = None
