"""Queries that people keep by a name, for all who may ask in the same tenant's data."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.app.context import AppContext
from proxy.clients.keys import ALL_TENANTS
from trajectory.documents.document import NAME_PATTERN
from trajectory.errors import ConfigurationError
from trajectory.files import damaged_file, locked, read_object, replace_file

_REMEDY = "restore it, or remove it and save the queries again"
_LONGEST = 20_000
_MOST = 500
"""Queries of one tenant's data."""

type _Queries = dict[str, dict[str, "SavedQuery"]]
"""By tenant and name."""


@dataclass(frozen=True, slots=True)
class SavedQuery:
    """A query with its name."""

    name: str
    query: str
    saved_by: str
    saved_at: float


class SavedQueries:
    """The file of an installation; it holds queries as they were typed, without addresses, cards and secrets."""

    def __init__(self, app: AppContext) -> None:
        """Keep them in the home's folder of state."""
        self._app = app
        self._path: Path = app.home.state / "saved-queries.json"

    def list(self, tenant: str = ALL_TENANTS) -> list[SavedQuery]:
        """Return the queries of a tenant's data, by name; ``*`` is what was kept of every tenant's.

        Raises:
            ConfigurationError: the file is damaged.
        """
        return [one for _, one in sorted(self._load().get(tenant, {}).items())]

    def get(self, name: str, tenant: str = ALL_TENANTS) -> SavedQuery:
        """Return a query by its name.

        Raises:
            ConfigurationError: there is none.
        """
        known = self._load().get(tenant, {})
        if name not in known:
            raise ConfigurationError(
                f"no query {name!r} is saved; there are: {', '.join(sorted(known)) or 'none'}"
            )
        return known[name]

    def save(self, name: str, query: str, *, who: str, tenant: str = ALL_TENANTS) -> None:
        """Keep a query; one of the same name is replaced.

        Raises:
            ConfigurationError: the name is no name, the query is none, too long or somebody's, or there are
                too many.
        """
        from train.inspection.inspection import plain_data

        text = query.strip().rstrip(";").rstrip()
        if not re.fullmatch(NAME_PATTERN, name):
            raise ConfigurationError(
                "a name has small letters, digits, dots, dashes and underscores, 63 at most"
            )
        if not 0 < len(text) <= _LONGEST:
            raise ConfigurationError(f"a query that is saved has 1 to {_LONGEST:,} characters")
        if found := plain_data(text.replace("%", " ")):  # the wild card may stand at a value
            raise ConfigurationError(
                f"the query holds what may be somebody's ({', '.join(sorted(found))}), and no erasure reaches "
                "what is saved: leave the value out, and ask with it without saving"
            )

        def change(kept: _Queries) -> None:
            there = kept.setdefault(tenant, {})
            if name not in there and len(there) >= _MOST:
                raise ConfigurationError(f"{_MOST} queries are saved; forget one first")
            self._note("query.saved", name, who, tenant)
            there[name] = SavedQuery(name, text, who, time.time())

        self._change(change)

    def forget(self, name: str, *, who: str, tenant: str = ALL_TENANTS) -> None:
        """Take a query away.

        Raises:
            ConfigurationError: there is none of this name.
        """
        self.get(name, tenant)

        def change(kept: _Queries) -> None:
            self._note("query.forgotten", name, who, tenant)
            kept.get(tenant, {}).pop(name, None)

        self._change(change)

    def _note(self, action: str, name: str, who: str, tenant: str) -> None:
        self._app.audit.append(actor=who, action=action, subject=name, detail={"tenant": tenant})

    def _change(self, change: Callable[[_Queries], object]) -> None:
        with locked(self._path.with_suffix(".lock"), wait=True):
            kept = self._load()
            change(kept)
            said = {
                tenant: [asdict(one) for one in there.values()] for tenant, there in kept.items()
            }
            replace_file(self._path, json.dumps(said).encode())

    def _load(self) -> _Queries:
        try:
            said = read_object(self._path, _REMEDY)
            return {
                tenant: {one["name"]: SavedQuery(**one) for one in there}
                for tenant, there in said.items()
            }
        except FileNotFoundError:
            return {}
        except (TypeError, KeyError) as error:
            raise damaged_file(self._path, error, _REMEDY) from None
