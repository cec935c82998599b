"""Lists of what is registered: runs and artefacts, the latest first."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from headrace.console.page import PAGE_ROWS, Page, PageRequest, paged, place_of
from headrace.console.users import ROLES


def _listed(view: str, columns: str, identity: str) -> Callable[[PageRequest], Mapping[str, Any]]:
    """Return what gives the rows of a view, by time and then by identity."""
    query = f"""
        SELECT {columns}, {identity} AS identity FROM {view}
        WHERE $at IS NULL OR (recorded_at, {identity}) < ($at, $last)
        ORDER BY recorded_at DESC, identity DESC LIMIT {PAGE_ROWS + 1}
    """  # noqa: S608 - our own names

    def data(asked: PageRequest) -> Mapping[str, Any]:
        at, last = place_of(asked.query.get("after"), datetime, str)
        rows, after = paged(asked.rows(query, at=at, last=last), ("recorded_at", "identity"))
        for row in rows:
            del row["identity"]
        return {"rows": rows, "after": after}

    return data


def _page(name: str, view: str, columns: str, identity: str) -> Page:
    return Page(
        path=f"/{name.lower()}",
        title=name,
        roles=ROLES,
        template="registry.html",
        data=_listed(view, columns, identity),
        every_tenant=True,
    )


PAGES = (
    _page(
        "Runs",
        "runs_latest",
        "run_id, recipe, status, substrate, substrate_version, base_model, started_at, ended_at, recorded_at",
        "run_id",
    ),
    _page(
        "Artefacts",
        "artifacts_latest",
        "name, version, surface, for_tenant, status, proposer, licence, decision_id, recorded_at, actor, reason",
        "name || '@' || version",
    ),
)
