"""Trusted SQL of this process over what one tenant may see: sessions and an index, kept from query to query.

The wall between tenants is the list of files. A tenant's session has no other tenant's files, and none of the
tables without tenants. The same holds of its index of trajectories.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehouse.read.connection import connect
from lakehouse.read.corrections import BY_DAY_OF_STEP
from lakehouse.read.dependencies import named
from lakehouse.read.session import Session, Snapshot
from lakehouse.read.trajectory_index import Days, TrajectoryIndex, of_days
from lakehouse.sandbox.deadline import NotListeningError

if TYPE_CHECKING:
    from lakehouse.lake import Lake

_MOST = 4
"""Sessions at once; each keeps what it has read of the files' metadata."""
_PATIENCE = 0.1
"""Seconds that who asks for a list waits for what came just now."""
_LEFT_BEHIND = 2_000
"""Files of the past that a session may remember; then a new one begins."""


_MISSING = """
SELECT message_id FROM (
    SELECT DISTINCT unnest(list_append(context_message_ids, output_message_id)) AS message_id
    FROM steps WHERE trajectory_id = $id)
WHERE message_id NOT IN (SELECT message_id FROM messages)
"""
_STORED = "SELECT DISTINCT event_date FROM messages WHERE message_id IN (SELECT unnest($names))"
_MOST_PLACES = 1_000
_SHARE = 10
"""Of the time, at most one part in so many goes into one statement about days that are past."""


@dataclass(slots=True)
class _KeptSession:
    """What is kept for one tenant."""

    index: TrajectoryIndex
    mutex: threading.Lock = field(default_factory=threading.Lock)
    session: Session | None = None
    narrow: Session | None = None
    """Bound to the days of one trajectory after the other."""
    recent: dict[int, Session] = field(default_factory=dict)
    """Bound to the last days, by how many."""
    answers: OrderedDict[object, tuple[float, pa.Table]] = field(default_factory=OrderedDict)
    """What was said of the last days, and until when it will do."""
    messages: OrderedDict[object, frozenset[str]] = field(default_factory=OrderedDict)
    """Days of messages that were stored before the trajectories that name them."""


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
        trajectory: str | None = None,
    ) -> pa.Table:
        """Return the rows of one statement over the files that a tenant may see.

        Args:
            tenant: whose; None for every tenant's.
            hidden: tables that do not exist.
            sql: the statement; it is trusted.
            parameters: its values.
            seconds: how long it may take.
            trajectory: the only one that it asks about: no other days are read than those of this one.

        Raises:
            QueryError: the SQL is wrong, or asks for a table that is not there.
            QueryTimeoutError: it took longer than ``seconds``.
            RetryableError: memory ran out, or files went away while reading.
        """
        place = self._place((tenant, hidden))
        days = None if trajectory is None else place.index.days(trajectory)
        with place.mutex:
            try:
                if trajectory is None or days is None or not days.steps:
                    return self._whole(place, tenant, hidden, sql, parameters, seconds)
                present = self._lake.snapshot_for(tenant, hidden=hidden)
                narrowed = _narrowed(present, days)
                asked = named(sql)
                if asked is None or "messages" in asked:
                    more = self._days_of_messages(
                        place, narrowed, tenant, hidden, trajectory, seconds
                    )
                    narrowed = _narrowed(present, days, more)
                return self._bound(place, narrowed).query(sql, parameters, seconds=seconds)
            except NotListeningError:
                place.session = place.narrow = None
                raise

    def recent(
        self, tenant: str | None, hidden: frozenset[str], sql: str, *, days: int, seconds: float
    ) -> pa.Table:
        """Return the rows of one statement over what happened in the last days, today included.

        An answer serves nine times as long as it took: then it is found anew.

        Raises:
            QueryError: the SQL is wrong.
            QueryTimeoutError: it took longer than ``seconds``.
            RetryableError: memory ran out, or files went away while reading.
        """
        place, now = self._place((tenant, hidden)), datetime.now(UTC)
        with place.mutex:
            until, answer = place.answers.get((sql, days), (0.0, None))
            begun = time.monotonic()
            if answer is not None and begun < until:
                return answer
            wanted = frozenset(str((now - timedelta(days=one)).date()) for one in range(days))
            present = self._lake.snapshot_for(tenant, hidden=hidden)
            snapshot = _narrowed(present, Days(wanted, wanted))
            try:
                session = place.recent[days] = self._moved(place.recent.get(days), snapshot)
                answer = session.query(sql, seconds=seconds)
            except NotListeningError:
                place.recent.clear()
                raise
            ended = time.monotonic()
            place.answers[sql, days] = ended + (_SHARE - 1) * (ended - begun), answer
            while len(place.answers) > _MOST_PLACES:
                place.answers.popitem(last=False)
            return answer

    def listed(
        self,
        tenant: str | None,
        hidden: frozenset[str],
        sql: str,
        parameters: Mapping[str, Any] | None,
    ) -> pa.Table:
        """Return the rows of a statement over the index of a tenant's trajectories, the table ``listed``.

        Raises:
            QueryError: the SQL is wrong.
            RetryableError: memory ran out, or files went away while reading.
        """
        return self._place((tenant, hidden)).index.rows(sql, parameters)

    def unlisted_days(self, tenant: str | None, hidden: frozenset[str]) -> int:
        """Return how many days of a tenant's trajectories are still to be listed, where all is read for the first time."""
        return self._place((tenant, hidden)).index.unread_days

    def close(self) -> None:
        """Give memory back; the next query takes it again."""
        with self._mutex:
            places, self._places = self._places, OrderedDict()
        for place in places.values():
            self._end(place)

    def _whole(
        self,
        place: _KeptSession,
        tenant: str | None,
        hidden: frozenset[str],
        sql: str,
        parameters: Mapping[str, Any] | None,
        seconds: float,
    ) -> pa.Table:
        session = place.session
        if session is not None and session.left_behind > _LEFT_BEHIND:
            session.close()
            session = None
        if session is None:
            snapshot = self._lake.snapshot_for(tenant, hidden=hidden)
            place.session = session = Session(snapshot, connection=connect(self._settings))
        else:
            session.bind(self._lake.snapshot_for(tenant, hidden=hidden, names=named(sql)))
        return session.query(sql, parameters, seconds=seconds)

    def _bound(self, place: _KeptSession, snapshot: Snapshot) -> Session:
        place.narrow = self._moved(place.narrow, snapshot)
        return place.narrow

    def _moved(self, session: Session | None, snapshot: Snapshot) -> Session:
        """Return a session, or another one that remembers less, bound to these files."""
        if session is not None and session.left_behind > _LEFT_BEHIND:
            session.close()
            session = None
        if session is None:
            return Session(snapshot, connection=connect(self._settings))
        session.bind(snapshot)
        return session

    def _days_of_messages(
        self,
        place: _KeptSession,
        narrowed: Snapshot,
        tenant: str | None,
        hidden: frozenset[str],
        trajectory: str,
        seconds: float,
    ) -> frozenset[str]:
        """Return the days of those of a trajectory's messages that were stored before it."""
        key = (trajectory, tuple(narrowed.files["steps"]))
        known = place.messages.get(key)
        if known is None:
            session = self._bound(place, narrowed)
            missing = session.query(_MISSING, {"id": trajectory}, seconds=seconds)
            names = missing.column(0).to_pylist()
            found: list[Any] = []
            if names:
                found = (
                    self._whole(place, tenant, hidden, _STORED, {"names": names}, seconds)
                    .column(0)
                    .to_pylist()
                )
            known = place.messages[key] = frozenset(str(day) for day in found)
            while len(place.messages) > _MOST_PLACES:
                place.messages.popitem(last=False)
        return known

    def _place(self, key: tuple[str | None, frozenset[str]]) -> _KeptSession:
        with self._mutex:
            place = self._places.get(key)
            if place is None:
                place = self._places[key] = _KeptSession(self._index(*key))
            self._places.move_to_end(key)
            old = [self._places.popitem(last=False)[1] for _ in range(len(self._places) - _MOST)]
        for one in old:
            self._end(one)
        return place

    def _index(self, tenant: str | None, hidden: frozenset[str]) -> TrajectoryIndex:
        def snapshot(names: Collection[str]) -> Snapshot:
            return self._lake.snapshot_for(tenant, hidden=hidden, names=names)

        return TrajectoryIndex(snapshot, self._settings, patience=_PATIENCE)

    @staticmethod
    def _end(place: _KeptSession) -> None:
        with place.mutex:
            for session in (place.session, place.narrow, *place.recent.values()):
                if session is not None:
                    session.close()
            place.session = place.narrow = None
            place.recent.clear()
            place.answers.clear()
            place.index.close()


def _narrowed(present: Snapshot, days: Days, messages: frozenset[str] = frozenset()) -> Snapshot:
    """Return those of the present files that may say something of a trajectory."""
    wanted = dict.fromkeys(BY_DAY_OF_STEP, days.steps)
    wanted["messages"] = days.steps | messages
    if days.signals is not None:
        wanted["signals"] = days.signals
    files = {
        name: of_days(there, wanted[name]) if name in wanted else there
        for name, there in present.files.items()
    }
    return replace(present, files=files)
