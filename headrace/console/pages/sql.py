"""SQL: ask the lake what the SQL server would answer; the query stands in the URL."""

from collections.abc import Mapping
from typing import Any

from headrace.console.page import Page, PageRequest
from headrace.console.users import ADMIN, PRIVACY, ROLES, TRAINER
from lakehouse.sql_server.catalog import catalog_of
from lakehouse.sql_server.service import TOKENS

_SHOWN = 500
"""Rows that a page shows; programs ask the SQL server."""
_EXAMPLES = (
    "SELECT * FROM success_by_model",
    "SELECT app_id, count(*) AS trajectories, avg(reward) AS reward FROM trajectories GROUP BY ALL",
    "SELECT * FROM tool_failures LIMIT 50",
)


def _sql(asked: PageRequest) -> Mapping[str, Any]:
    query = asked.query.get("query", "").strip().rstrip(";")
    data = {"query": query, "examples": _EXAMPLES, "columns": [], "rows": [], "is_cut": False}
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
    return data | {"columns": answer.schema.names, "rows": rows[:_SHOWN], "is_cut": is_cut}


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
        roles=frozenset({TRAINER, PRIVACY, ADMIN}),
        template="sql.html",
        data=_sql,
        shows_content=True,
    ),
    Page(path="/tables", title="Tables", roles=ROLES, template="tables.html", data=_tables),
)
