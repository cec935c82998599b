"""Approvals over HTTP, for consoles and scripts of operators; on the admin port, never on the clients'.

An operator's credential is one of its own. A client key opens nothing here: who asks for a call must not
let it go on.
"""

import hmac
import json
import re
from dataclasses import asdict, dataclass, field
from urllib.parse import parse_qsl

from proxy.guard.approvals import STATUSES, Approvals, Audit
from proxy.responses import LocalReply, json_reply
from trajectory.canonical import JsonValue
from trajectory.errors import ConfigurationError, HeadraceError

_PATH = re.compile(r"/approvals(?:/(?P<id>[0-9a-f]{1,64})(?:/(?P<verb>approve|deny))?)?")
_WHO = re.compile(r"[A-Za-z0-9._@-]{1,100}")
_LONGEST_REASON = 1000
MOST_BODY_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class OperatorTerms:
    """What lets operators in, and what is written down of them."""

    credential: str = field(repr=False)
    audit: Audit


class OperatorApi:
    """Lists, shows, approves and denies; called in threads."""

    def __init__(self, approvals: Approvals, terms: OperatorTerms) -> None:
        """Answer for these approvals."""
        self._approvals = approvals
        self._terms = terms

    def answer(self, method: str, target: str, authorization: str, body: bytes) -> LocalReply:
        """Return the answer to a request below ``/approvals``."""
        scheme, _, given = authorization.partition(" ")
        known = self._terms.credential.encode()
        right = hmac.compare_digest(given.strip().encode("utf-8", "replace"), known)
        if scheme.lower() != "bearer" or not right:
            text = (
                "an operator's credential is missing or wrong; see `headrace approvals credential`"
            )
            return json_reply(401, {"error": text})
        path, _, query = target.partition("?")
        found = _PATH.fullmatch(path)
        if found is None:
            return json_reply(404, {"error": "no such place"})
        approval_id, verb = found["id"], found["verb"]
        if method != ("POST" if verb else "GET"):
            return json_reply(405, {"error": "GET lists and shows; POST approves and denies"})
        try:
            if verb:
                return self._decide(approval_id, verb, body)
            return self._show(approval_id) if approval_id else self._list(query)
        except ConfigurationError as error:
            return json_reply(404, {"error": str(error)})
        except HeadraceError as error:  # the audit log takes nothing: nothing is shown or decided
            return json_reply(503, {"error": str(error)})

    def _list(self, query: str) -> LocalReply:
        asked = dict(parse_qsl(query))
        status = asked.get("status", "pending")
        if status not in (*STATUSES, "all"):
            valid = ", ".join((*STATUSES, "all"))
            return json_reply(400, {"error": f"no such status; valid: {valid}"})
        rows: list[JsonValue] = [
            asdict(one) for one in self._approvals.list(status, asked.get("tenant"))
        ]
        return json_reply(200, {"approvals": rows})

    def _show(self, approval_id: str) -> LocalReply:
        row = self._approvals.get(approval_id)
        said = self._approvals.asked(approval_id)
        if said is not None:
            self._terms.audit("operator", "approval.read", approval_id, {})
        return json_reply(200, {**asdict(row), **(said or {})})

    def _decide(self, approval_id: str, verb: str, body: bytes) -> LocalReply:
        try:
            given = json.loads(body) if body.strip() else {}
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict) or given.keys() - {"reason", "who"}:
            return json_reply(400, {"error": 'send {"reason": "...", "who": "..."}, or nothing'})
        reason, who = given.get("reason", ""), given.get("who", "")
        if not isinstance(reason, str) or len(reason) > _LONGEST_REASON:
            return json_reply(400, {"error": f"reason: at most {_LONGEST_REASON} characters"})
        if not isinstance(who, str) or (who and not _WHO.fullmatch(who)):
            return json_reply(400, {"error": "who: letters, digits and . _ @ - alone"})
        before = self._approvals.get(approval_id)
        if before.status != "pending":
            text = f"{approval_id} does not wait any more: it is {before.status}."
            return json_reply(409, {"error": text})
        actor = f"operator:{who}" if who else "operator"
        try:
            found = self._approvals.decide(
                approval_id,
                approve=verb == "approve",
                who=actor,
                reason=reason,
                audit=self._terms.audit,
            )
        except ConfigurationError as error:  # somebody was faster
            return json_reply(409, {"error": str(error)})
        return json_reply(200, {"approval": approval_id, "status": found.status})
