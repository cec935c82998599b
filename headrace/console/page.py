"""What a page of the console is: a path, who may see it, where its data come from, how they look.

A page gives data; its template shows them, and its JSON twin (the path with ``.json``) is the same data. Reads go
through the SQL service as the user who asks. So the wall between tenants is the SQL server's own: a tenant's page
has that tenant's files alone.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.app.context import AppContext
from headrace.console.sessions import SessionStore
from headrace.console.users import TrustedProxies, User
from lakehouse.sandbox.parameters import from_json, to_json
from lakehouse.sql_server.service import AdmittedQuery, Reader, SqlService
from proxy.clients.keys import ALL_TENANTS
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from headrace.console.oidc import IdentityProvider

PAGE_ROWS = 50
"""Rows of one page of a list."""

type Data = Mapping[str, Any]


@dataclass(frozen=True)
class Console:
    """What all pages stand on."""

    running: AppContext
    sql: SqlService
    sessions: SessionStore
    proxies: TrustedProxies
    provider: "IdentityProvider | None" = None
    """Who signs people in, where the settings name one."""

    def close(self) -> None:
        """End the queries that run."""
        self.sql.close()


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Somebody asks for a page."""

    console: Console
    user: User
    tenant: str
    """In whose data; ``*`` is every tenant's."""
    query: Mapping[str, str]
    """Parameters of the URL."""
    path: Mapping[str, str]
    """Parts of the path that the page names."""
    form: Mapping[str, str] | None = None
    """What was sent with POST."""

    @property
    def reads_every_tenant(self) -> bool:
        """Whether data are shown that belong to no tenant alone."""
        return self.tenant == ALL_TENANTS

    @property
    def _reader(self) -> Reader:
        return Reader(self.user.name, None if self.reads_every_tenant else self.tenant)

    def ask(self, sql: str, parameters: Any = None) -> AdmittedQuery:
        """Let a query of the user's own in; its answer must be closed."""
        return self.console.sql.ask(self._reader, sql, parameters)

    def rows(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        """Return the rows of a statement of our own, which bounds them itself."""
        return self.console.sql.own_rows(self._reader, sql, parameters or None)

    def rows_of(self, trajectory: str, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        """Return the rows of a statement of our own that asks of one trajectory alone."""
        own = self.console.sql.own_rows
        return own(self._reader, sql, parameters or None, trajectory=trajectory)

    def recent(self, days: int, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a statement of our own over the last days; they may be some seconds old."""
        return self.console.sql.recent_rows(self._reader, sql, days=days)

    def listed(self, sql: str, /, **parameters: Any) -> list[dict[str, Any]]:
        """Return the rows of a statement of our own over ``listed``, the index of trajectories."""
        return self.console.sql.listed_rows(self._reader, sql, parameters or None)

    @property
    def unlisted_days(self) -> int:
        """How many days are still to come in ``listed``, after the console's start: the latest come first."""
        return self.console.sql.unlisted_days(self._reader)

    @property
    def sent(self) -> Mapping[str, str]:
        """What was sent with POST; empty where nothing was."""
        return {} if self.form is None else self.form

    def note(self, action: str, subject: str, **detail: Any) -> None:
        """Write into the audit log what the user did."""
        self.console.running.audit.append(
            actor=self.user.name,
            action=action,
            subject=subject,
            detail={"tenant": self.tenant, **detail},
        )


@dataclass(frozen=True, slots=True)
class Download:
    """A file that a page gives out."""

    name: str
    kind: str
    """Its media type."""
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page and its JSON twin."""

    path: str
    title: str
    roles: frozenset[str]
    """Who may see it; nobody else."""
    template: str
    data: Callable[[PageRequest], Data]
    shows_content: bool = False
    """Whether it shows what people and agents said: each reading is an audit event."""
    looks_again: int | None = None
    """Seconds after which a browser asks of itself what is new, where a page shows what comes and goes."""
    every_tenant: bool = False
    """Whether it shows what belongs to no tenant: then a role in every tenant's data is needed."""
    downloads: Mapping[str, Callable[[PageRequest], Download]] = field(default_factory=dict)
    """What stands behind its path with another suffix, by that suffix."""
    is_listed: bool = True
    """Whether the navigation names it."""
    senders: frozenset[str] = frozenset()
    """Who may send its form (POST), as a part of who may see it; what is sent so stands in no URL."""


def cursor_of(values: Sequence[Any]) -> str:
    """Return the place of a row in a list as a parameter of a URL."""
    text = json.dumps(to_json(list(values)), separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place_of(cursor: str | None, *kinds: type) -> list[Any]:
    """Return the values that :func:`cursor_of` wrote; nulls for the beginning of a list.

    Raises:
        ConfigurationError: it is none.
    """
    if not cursor:
        return [None] * len(kinds)
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        values = from_json(json.loads(base64.urlsafe_b64decode(padded)))
    except (ValueError, binascii.Error, KeyError, RecursionError, TypeError):
        values = None
    fits = isinstance(values, list) and len(values) == len(kinds)
    if not fits or not all(isinstance(one, kind) for one, kind in zip(values, kinds, strict=True)):
        raise ConfigurationError("after: no place in this list; begin again without it")
    return list(values)


def paged(
    rows: list[dict[str, Any]], keys: Sequence[str], most: int = PAGE_ROWS
) -> tuple[list[dict[str, Any]], str | None]:
    """Return the rows of one page and the place of the next, of a query that gave one row more."""
    if len(rows) <= most:
        return rows, None
    last = rows[most - 1]
    return rows[:most], cursor_of([_moment(last[key]) for key in keys])


def _moment(value: Any) -> Any:
    return datetime.fromisoformat(value.isoformat()) if isinstance(value, datetime) else value
