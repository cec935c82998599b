"""Held calls are put to the user of an MCP client, by the protocol's own ``elicitation/create``.

Which sessions can be asked stands in the file of approvals, under a keyed hash. A question's id is made of
its approval and of the session that it was put to. So every worker knows the answer, and no other session can
give one.
"""

import hmac
import json
import re
import time
from collections.abc import Callable
from typing import NamedTuple

from proxy.guard.approvals import Approval, Approvals
from proxy.guard.rules import RequestedCall
from trajectory.canonical import JsonObject, JsonValue

SESSION_HEADER = b"mcp-session-id"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS elicitation_sessions (
    name TEXT PRIMARY KEY, expires REAL NOT NULL
) WITHOUT ROWID
"""
_KEPT_SECONDS = 30 * 86400.0
_OURS = "headrace-approval-"
_QUESTION_ID = re.compile(_OURS + r"(?P<approval>[0-9a-f]{16})-(?P<proof>[0-9a-f]{40})")
_LONGEST = 10_000
"""Characters of arguments that a person may be asked to read; longer ones are an operator's affair."""
_DECISIONS = {"accept": True, "decline": False, "cancel": False}


class McpSession(NamedTuple):
    """A session of an MCP client."""

    tenant: str
    key_id: str
    route: str
    name: str
    """Its ``mcp-session-id``, or the run of a stdio server."""


class ElicitedAnswer(NamedTuple):
    """What a client says to a question of the gateway's."""

    question_id: str
    approves: bool | None
    """None where its user was not asked."""


class ClientUser(NamedTuple):
    """The person at a client that waits."""

    session: McpSession
    put: Callable[[JsonObject], None]
    """Sends a question to the client."""


def declares_elicitation(parameters: JsonValue) -> bool:
    """Tell whether parameters of ``initialize`` say that the client can show a form."""
    capabilities = parameters.get("capabilities") if isinstance(parameters, dict) else None
    said = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    return isinstance(said, dict) and (not said or isinstance(said.get("form"), dict))


def elicited_answer(message: JsonObject) -> ElicitedAnswer | None:
    """Return what a JSON-RPC response answers the gateway; None where it answers its server."""
    question_id, result = message.get("id"), message.get("result")
    if not isinstance(question_id, str) or not question_id.startswith(_OURS):
        return None
    action = result.get("action") if isinstance(result, dict) and "error" not in message else None
    return ElicitedAnswer(question_id, _DECISIONS.get(action) if isinstance(action, str) else None)


def withdrawal(question: JsonObject) -> JsonObject:
    """Return what tells a client that nobody waits for its user's answer any more."""
    said = "Headrace: this call is decided, or its time is up."
    params: JsonObject = {"requestId": question["id"], "reason": said}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


class Elicitations:
    """Knows which sessions can be asked, and makes and recognises questions."""

    def __init__(self, approvals: Approvals, clock: Callable[[], float] = time.time) -> None:
        """Keep sessions in the file of approvals, under its key."""
        self._approvals = approvals
        self._clock = clock

    def remember(self, session: McpSession) -> None:
        """Note that a session's client can ask its user."""
        now = self._clock()
        with self._approvals.writing() as file:
            file.execute(_SCHEMA)
            file.execute("DELETE FROM elicitation_sessions WHERE expires <= ?", (now,))
            file.execute(
                "INSERT OR REPLACE INTO elicitation_sessions (name, expires) VALUES (?, ?)",
                (self._approvals.fingerprint(["session", *session]), now + _KEPT_SECONDS),
            )

    def can_ask(self, session: McpSession) -> bool:
        """Tell whether a session's client has said that it can ask its user."""
        name = self._approvals.fingerprint(["session", *session])
        with self._approvals.writing() as file:
            file.execute(_SCHEMA)
            found = file.execute(
                "SELECT 1 FROM elicitation_sessions WHERE name = ? AND expires > ?",
                (name, self._clock()),
            )
            return found.fetchone() is not None

    def question(
        self, row: Approval, call: RequestedCall, session: McpSession
    ) -> JsonObject | None:
        """Return the request that asks a session's user; None where the call is too long to read."""
        arguments = _readable(call.arguments)
        if len(arguments) > _LONGEST:
            return None
        text = (
            f"Headrace: rule {row.rule} asks you before this call is made, once.\n"
            f"Tool: {call.tool}\nArguments: {arguments}"
        )
        schema: JsonObject = {"type": "object", "properties": {}}
        return {
            "jsonrpc": "2.0",
            "id": f"{_OURS}{row.approval_id}-{self._proof(row.approval_id, session)}",
            "method": "elicitation/create",
            "params": {"message": text, "requestedSchema": schema},
        }

    def approval_of(self, question_id: str, session: McpSession) -> str | None:
        """Return which approval a question was about; None where this session was not asked."""
        found = _QUESTION_ID.fullmatch(question_id)
        if found is None or not session.name:
            return None
        approval_id = found["approval"]
        right = hmac.compare_digest(found["proof"], self._proof(approval_id, session))
        return approval_id if right else None

    def _proof(self, approval_id: str, session: McpSession) -> str:
        return self._approvals.fingerprint(["question", approval_id, *session])


def _readable(arguments: JsonValue) -> str:
    """Return arguments as a person sees them all: what is invisible or turns a line round is escaped."""
    text = json.dumps(arguments, ensure_ascii=False)
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )
