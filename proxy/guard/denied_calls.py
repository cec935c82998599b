"""Denied calls of responses that their provider keeps: it waits for results, and the gateway gives them.

The client got a text in such a call's place, so it has no result to send when it goes on by
``previous_response_id``. The rows stand in the file of approvals; which calls they name is sealed.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

from proxy.guard.approvals import Approvals
from proxy.request_json import dumped

_SCHEMA = """
CREATE TABLE IF NOT EXISTS denied_calls (
    name TEXT PRIMARY KEY, expires REAL NOT NULL, sealed BLOB NOT NULL
) WITHOUT ROWID
"""
_KEPT_SECONDS = 30 * 86400.0
"""For so long providers keep responses."""
_NAMED = b'"previous_response_id"'
_SAID = "Headrace: this call was denied. It was not made; go on without it."
_RESULTS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
"""Calls whose result is a text; the type of the result is theirs with ``_output``."""
_QUESTION = "mcp_approval_request"

type DeniedCall = tuple[str, str]
"""The type of a call, and the id by which its result names it."""


def denied_call(item: dict[str, Any]) -> DeniedCall | None:
    """Return what is kept of a call's item; None where no result can be made for it."""
    kind = item.get("type")
    name = item.get("id" if kind == _QUESTION else "call_id")
    known = isinstance(name, str) and (kind in _RESULTS or kind == _QUESTION)
    return (str(kind), str(name)) if known else None


class DeniedCalls:
    """Keeps them, and puts their results into the request that goes on from them."""

    def __init__(self, approvals: Approvals, clock: Callable[[], float] = time.time) -> None:
        """Keep them in the file of approvals, under its key."""
        self._approvals = approvals
        self._clock = clock

    def keep(self, tenant: str, response_id: str, calls: Sequence[DeniedCall]) -> None:
        """Keep the denied calls of a response."""
        name, now = self._approvals.fingerprint([tenant, response_id]), self._clock()
        sealed = self._approvals.seal(json.dumps(calls).encode(), name)
        with self._approvals.writing() as file:
            file.execute(_SCHEMA)
            file.execute("DELETE FROM denied_calls WHERE expires <= ?", (now,))
            file.execute(
                "INSERT OR REPLACE INTO denied_calls (name, expires, sealed) VALUES (?, ?, ?)",
                (name, now + _KEPT_SECONDS, sealed),
            )

    def completed(self, tenant: str, body: bytes) -> bytes:
        """Return a request with the results that its provider waits for; others stay as they are."""
        if _NAMED not in body or not self._approvals.path.exists():
            return body
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return body
        if not isinstance(value, dict) or not isinstance(value.get("previous_response_id"), str):
            return body
        calls = self._of(tenant, value["previous_response_id"])
        given = value.get("input", [])
        if isinstance(given, str):
            given = [{"role": "user", "content": given}]
        if not calls or not isinstance(given, list):
            return body
        told = {(one.get("call_id"), one.get("approval_request_id"))
                for one in given if isinstance(one, dict)}  # fmt: skip
        known = {name for pair in told for name in pair}
        results = [_result(kind, name) for kind, name in calls if name not in known]
        return dumped({**value, "input": [*results, *given]})

    def _of(self, tenant: str, response_id: str) -> list[DeniedCall]:
        name = self._approvals.fingerprint([tenant, response_id])
        with self._approvals.writing() as file:
            try:
                row = file.execute(
                    "SELECT sealed FROM denied_calls WHERE name = ? AND expires > ?",
                    (name, self._clock()),
                ).fetchone()
            except (
                sqlite3.OperationalError
            ):  # none was kept yet, or the disk refuses: it goes on as it is
                return []
        if row is None:
            return []
        return [(kind, call) for kind, call in json.loads(self._approvals.unseal(row[0], name))]


def _result(kind: str, name: str) -> dict[str, Any]:
    if kind == _QUESTION:
        return {"type": "mcp_approval_response", "approval_request_id": name, "approve": False}
    return {"type": f"{kind}_output", "call_id": name, "output": _SAID}
