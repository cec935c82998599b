"""SQL: ask the lake what the SQL server would answer; the query stands in the URL, and may be kept by a name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from io import BytesIO
from typing import Any

from headrace.app.output import moment
from headrace.app.row_formats import write
from headrace.console.page import Download, Page, PageRequest
from headrace.console.users import ADMIN, PRIVACY, ROLES, TRAINER
from headrace.services.saved_queries import SavedQueries
from lakehouse.sql_server.catalog import catalog_of
from lakehouse.sql_server.service import TOKENS
from trajectory.errors import ConfigurationError

_ASKERS = frozenset({TRAINER, PRIVACY, ADMIN})
_SHOWN = 500
"""Rows that a page shows; programs ask the SQL server."""
_BARS = 60
"""Bars of a chart at most."""
_EXAMPLES = (
    "SELECT * FROM success_by_model",
    "SELECT app_id, count(*) AS trajectories, avg(reward) AS reward FROM trajectories GROUP BY ALL",
    "SELECT * FROM tool_failures LIMIT 50",
)


def _sql(asked: PageRequest) -> Mapping[str, Any]:
    if asked.sent:
        _keep(asked)
    query = asked.query.get("query", "").strip().rstrip(";")
    kept = SavedQueries(asked.console.running).list(asked.tenant)
    data = {
        "query": query,
        "saved": [{**asdict(one), "saved_at": moment(one.saved_at)} for one in kept],
        "examples": _EXAMPLES,
        "columns": [],
        "rows": [],
        "is_cut": False,
        "chart": None,
    }
    if not query:
        return data
    rows: list[list[Any]] = []
    answer = asked.ask(query)
    try:
        for batch in answer.batches(may_be_cut=True):
            rows += [[column[at].as_py() for column in batch.columns] for at in range(len(batch))]
            if len(rows) > _SHOWN:
                break
        is_cut = len(rows) > _SHOWN or answer.outcome == "truncated"
    finally:
        answer.close()
    names, shown = answer.schema.names, rows[:_SHOWN]
    return data | {"columns": names, "rows": shown, "is_cut": is_cut, "chart": _chart(names, shown)}


def _keep(asked: PageRequest) -> None:
    """Keep a query by a name, or forget one, as the form says."""
    saved, sent = SavedQueries(asked.console.running), asked.sent
    name, who = sent.get("name", "").strip(), asked.user.name
    match sent.get("do"):
        case "save":
            saved.save(name, sent.get("query", ""), who=who, tenant=asked.tenant)
        case "forget":
            saved.forget(name, who=who, tenant=asked.tenant)
        case _:
            raise ConfigurationError("a query is saved or forgotten")


def _chart(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Mapping[str, Any] | None:
    """Return the first column of numbers beside what stands before it, where bars can show it."""
    if not 1 < len(rows) <= _BARS:
        return None
    for at, name in enumerate(names[1:], 1):
        values = [row[at] for row in rows]
        numbers = [one for one in values if isinstance(one, int | float) and one is not True]
        if len(numbers) == len(values) and all(0 <= one < float("inf") for one in numbers):
            return {"title": name, "labels": [row[0] for row in rows], "values": values}
    return None


def _rows_as(name: str, kind: str) -> Callable[[PageRequest], Download]:
    """Return what gives the whole answer of a query in a format of ``headrace sql``."""

    def file(asked: PageRequest) -> Download:
        answer = asked.ask(asked.query.get("query", "").strip().rstrip(";"))
        try:
            target = BytesIO()
            write(answer.schema, answer.batches(), name, target)
        finally:
            answer.close()
        return Download(f"answer.{name}", kind, target.getvalue())

    return file


def _tables(asked: PageRequest) -> Mapping[str, Any]:
    found = catalog_of(one_tenant=not asked.reads_every_tenant, hidden=TOKENS)
    return {
        "tables": [
            {
                "name": table.name,
                "kind": table.kind.lower(),
                "comment": table.comment,
                "columns": [
                    {"name": column.name, "type": str(column.type)} for column in table.schema
                ],
            }
            for table in found
        ]
    }


PAGES = (
    Page(
        path="/sql",
        title="SQL",
        roles=_ASKERS,
        senders=_ASKERS,
        template="sql.html",
        data=_sql,
        shows_content=True,
        downloads={
            "csv": _rows_as("csv", "text/csv"),
            "parquet": _rows_as("parquet", "application/vnd.apache.parquet"),
        },
    ),
    Page(path="/tables", title="Tables", roles=ROLES, template="tables.html", data=_tables),
)
