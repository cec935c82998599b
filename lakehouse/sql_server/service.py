"""Who may ask the lake what over the network, how much at once, and what is kept of it.

A :class:`Reader` stands for a key: its tenant's files are all that its queries find. Each
query is noted before its first row leaves, and again when its answer ended. A note holds counts and
a keyed hash of the text, never a value.
"""

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from lakehouse.errors import QueryError
from lakehouse.read.snapshot import AsOf
from lakehouse.read.tenant_sessions import TenantSessions
from lakehouse.sandbox.client import open_untrusted
from lakehouse.sandbox.deadline import QueryTimeoutError
from lakehouse.sandbox.pool import Workers
from lakehouse.sandbox.request import Limits, Query
from lakehouse.sandbox.stream import QueryCancelledError, QueryResult
from lakehouse.sql_server.catalog import CatalogTable, catalog_of
from trajectory.errors import RetryableError

if TYPE_CHECKING:
    from lakehouse.lake import Lake

TOKENS = frozenset({"tokens"})
"""Tables that need a role of their own: token ids decode to text."""


class TooManyRowsError(QueryError):
    """The answer has more rows than the server gives out."""


class QueriesBusyError(RetryableError):
    """All places are taken; the same query may be sent again."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Who asks."""

    key_id: str
    """As the audit log has it: ``client:`` and the id of a key; of the console a person's name."""
    tenant: str | None
    """Only this tenant's rows exist; None reads all tenants."""
    tokens: bool = False
    """Whether token ids may be read."""

    @property
    def hidden(self) -> frozenset[str]:
        """Tables that do not exist for this reader."""
        return frozenset() if self.tokens else TOKENS


class Authenticate(Protocol):
    """Returns who presents a key; None when nobody may read with it."""

    def __call__(self, secret: str, /) -> Reader | None: ...


class Record(Protocol):
    """Keeps an entry of the audit."""

    def __call__(
        self, *, actor: str, action: str, subject: str, detail: Mapping[str, Any]
    ) -> object: ...


@dataclass(frozen=True, slots=True)
class SqlLimits:
    """What all queries together may use."""

    query: Limits = field(default_factory=Limits)
    """Of one query."""
    queries: int = 4
    """Concurrent queries. Peak memory is this times ``memory_mib``."""
    queries_per_key: int = 2
    """At once with one key, so that nobody takes all places."""
    wait_seconds: float = 10.0
    """How long a query waits for a place."""


class AdmittedQuery:
    """A query that was let in, and its answer; it must be closed."""

    def __init__(
        self, answer: QueryResult, limits: Limits, done: Callable[["AdmittedQuery"], None]
    ) -> None:
        self._answer = answer
        self._limits = limits
        self._done: Callable[[AdmittedQuery], None] | None = done
        self._ending = threading.Lock()
        self.outcome = "abandoned"
        """answered, truncated, refused, too_many_rows, timed_out, failed or abandoned"""
        self.schema: pa.Schema = answer.schema
        self.tables = answer.tables
        self.parameters = answer.parameters
        this = weakref.ref(self)

        def stopped(error: Exception) -> None:
            if (admitted := this()) is not None:
                admitted._end(outcome_of(error))

        answer.when_stopped(stopped)

    @property
    def rows(self) -> int:
        """Rows that left so far."""
        return self._answer.rows

    @property
    def bytes(self) -> int:
        """Bytes that left so far."""
        return self._answer.bytes

    def batches(self, *, may_be_cut: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Args:
            may_be_cut: end quietly at the limit of rows (``outcome`` is then ``truncated``).

        Raises:
            TooManyRowsError: the limit of rows was reached.
            QueryTimeoutError: the deadline passed.
        """
        try:
            yield from self._answer
            self.outcome = "truncated" if self._answer.truncated else "answered"
            if self._answer.truncated and not may_be_cut:
                raise TooManyRowsError(
                    f"more than {self._limits.rows:,} rows: add a condition, an aggregate or a LIMIT"
                )
        except Exception as error:
            self.outcome = outcome_of(error)
            raise

    def close(self) -> None:
        """End the query's process and give its place back; a second call does nothing."""
        self._answer.close()
        self._end()

    def _end(self, outcome: str | None = None) -> None:
        """Give the place back, once; at the deadline also where a client reads no more."""
        with self._ending:
            done, self._done = self._done, None
        if done is not None:
            self.outcome = outcome or self.outcome
            done(self)

    def __del__(self) -> None:
        with suppress(Exception):
            self.close()


def outcome_of(error: Exception) -> str:
    """Return the word of the audit for an error."""
    match error:
        case TooManyRowsError():
            return "too_many_rows"
        case QueryTimeoutError():
            return "timed_out"
        case QueryCancelledError():
            return "abandoned"
        case QueryError():
            return "refused"
    return "failed"


class SqlService:
    """Lets queries in; safe for threads."""

    def __init__(
        self,
        lake: "Lake",
        *,
        authenticate: Authenticate,
        record: Record,
        hash_key: bytes,
        limits: SqlLimits | None = None,
    ) -> None:
        """Prepare to answer.

        Args:
            lake: the lake.
            authenticate: tells whose a key is.
            record: keeps the audit.
            hash_key: keys the hashes of statements in the audit.
            limits: what queries may use.
        """
        self.lake = lake
        self.limits = limits or SqlLimits()
        self.authenticate = authenticate
        self._record = record
        self._hash_key = hash_key
        self._workers = Workers(min(2, self.limits.queries))
        self._own = TenantSessions(lake, memory_mib=self.limits.query.memory_mib)
        self._places = threading.Condition()
        self._taken: dict[str, int] = {}
        self._closed = False

    def ask(
        self,
        reader: Reader,
        sql: str,
        parameters: Any = None,
        *,
        as_of: AsOf | None = None,
        gone: Callable[[], bool] | None = None,
    ) -> AdmittedQuery:
        """Let a query in and return its answer, whose rows are still to be read.

        Raises:
            QueryError: the SQL is wrong, or asks for what it may not.
            QueriesBusyError: no place became free in time.
            QueryTimeoutError: the deadline passed.
            RetryableError: memory ran out, or files went away while reading.
        """
        query = Query(sql, parameters, reader.tenant, as_of, reader.hidden)
        begun = time.monotonic()
        self._enter(reader.key_id, gone)
        try:
            answer = self._open(query, gone)
        except Exception as error:
            self._leave(reader.key_id)
            self._note("lake.refused", reader, sql, {"outcome": outcome_of(error)})
            raise
        admitted = AdmittedQuery(
            answer, self.limits.query, lambda it: self._over(reader, sql, it, begun)
        )
        try:
            self._note("lake.asked", reader, sql, {"tables": sorted(answer.tables)})
        except BaseException:
            admitted.close()
            raise
        return admitted

    def own_rows(
        self,
        reader: Reader,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        trajectory: str | None = None,
    ) -> list[dict[str, Any]]:
        """Return the rows of a statement of our own, over the files that a reader may see.

        Such a statement is trusted and bounds its rows itself: it needs no process of its own. What a
        person sees of its answer, who asks notes. Where it asks of one trajectory, its name saves time.

        Raises:
            QueryError: the SQL is wrong.
            QueryTimeoutError: the deadline passed.
            RetryableError: memory ran out, or files went away while reading.
        """
        found = self._own.query(
            reader.tenant,
            reader.hidden,
            sql,
            parameters,
            seconds=self.limits.query.seconds,
            trajectory=trajectory,
        )
        return list(found.to_pylist())

    def recent_rows(self, reader: Reader, sql: str, *, days: int) -> list[dict[str, Any]]:
        """Return the rows of one over the last days, as :meth:`own_rows`; they may be some seconds old."""
        seconds = self.limits.query.seconds
        found = self._own.recent(reader.tenant, reader.hidden, sql, days=days, seconds=seconds)
        return list(found.to_pylist())

    def listed_rows(
        self, reader: Reader, sql: str, parameters: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Return the rows of one over ``listed``, the index of a reader's trajectories, likewise."""
        return list(self._own.listed(reader.tenant, reader.hidden, sql, parameters).to_pylist())

    def unlisted_days(self, reader: Reader) -> int:
        """Return how many days are still to come in ``listed``, after a start."""
        return self._own.unlisted_days(reader.tenant, reader.hidden)

    def describe(self, reader: Reader, sql: str) -> AdmittedQuery:
        """Let a query in for the schema of its answer and its parameters; no row is read."""
        self._enter(reader.key_id, None)
        query = Query(sql, None, reader.tenant, None, reader.hidden, describe=True)
        try:
            answer = self._open(query, None)
        except Exception as error:
            self._leave(reader.key_id)
            self._note("lake.refused", reader, sql, {"outcome": outcome_of(error)})
            raise
        return AdmittedQuery(answer, self.limits.query, lambda _: self._leave(reader.key_id))

    def catalog(self, reader: Reader) -> tuple[CatalogTable, ...]:
        """Return the tables and views that exist for a reader, by name."""
        return catalog_of(one_tenant=reader.tenant is not None, hidden=reader.hidden)

    def close(self) -> None:
        """End the queries that run, and the processes that wait for more."""
        self._closed = True
        self._workers.close()
        self._own.close()

    def _open(self, query: Query, gone: Callable[[], bool] | None) -> QueryResult:
        return open_untrusted(
            self.lake,
            query,
            limits=self.limits.query,
            process=self._workers.take(),
            gone=lambda: self._closed or (gone is not None and gone()),
        )

    def _enter(self, key_id: str, gone: Callable[[], bool] | None) -> None:
        due = time.monotonic() + self.limits.wait_seconds
        with self._places:
            while not self._has_place(key_id):
                left = due - time.monotonic()
                if left <= 0:
                    raise QueriesBusyError(
                        f"{self.limits.queries_per_key} queries of a key and "
                        f"{self.limits.queries} in all run at once; ask again when one has ended"
                    )
                if gone is not None and gone():
                    raise QueryCancelledError("nobody waits for the answer any more")
                self._places.wait(min(left, 0.5))
            self._taken[key_id] = self._taken.get(key_id, 0) + 1

    def _has_place(self, key_id: str) -> bool:
        return (
            sum(self._taken.values()) < self.limits.queries
            and self._taken.get(key_id, 0) < self.limits.queries_per_key
        )

    def _leave(self, key_id: str) -> None:
        with self._places:
            self._taken[key_id] -= 1
            if not self._taken[key_id]:
                del self._taken[key_id]
            self._places.notify_all()

    def _over(self, reader: Reader, sql: str, admitted: AdmittedQuery, begun: float) -> None:
        self._leave(reader.key_id)
        detail = {
            "outcome": admitted.outcome,
            "rows": admitted.rows,
            "bytes": admitted.bytes,
            "milliseconds": round(1000 * (time.monotonic() - begun)),
        }
        self._note("lake.answered", reader, sql, detail)

    def _note(self, action: str, reader: Reader, sql: str, detail: Mapping[str, Any]) -> None:
        text = sql.encode("utf-8", "replace")
        statement = blake2b(text, key=self._hash_key[:64], digest_size=20).hexdigest()
        self._record(
            actor=reader.key_id,
            action=action,
            subject=f"b2:{statement}",
            detail={"tenant": reader.tenant or "*", **detail},
        )
