"""What the gateway captured: one HTTP exchange or one piece of feedback, raw and before policy.

These values hold personal data in clear. They live in memory and in the sealed spool only.
"""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar
from urllib.parse import quote

from trajectory.canonical import JsonObject, content_hash
from trajectory.version import SCHEMA_VERSION

type Headers = tuple[tuple[str, str], ...]

NO_TENANT = "__HIVE_DEFAULT_PARTITION__"
"""How readers of partitioned tables write that there is no value."""
LONGEST_TENANT = 200
"""Of the 255 bytes that file systems give a folder's name, as the lake writes it."""
_SHORT = LONGEST_TENANT // 12
"""Characters that fit whatever they are: UTF-8 has four bytes at most, each written as three."""


def has_folder(tenant_id: str) -> bool:
    """Tell whether a tenant's name can be that of a folder in the lake; rows of others have no place."""
    if tenant_id in ("", NO_TENANT):
        return False
    if len(tenant_id) <= _SHORT:
        return True
    return len(quote(tenant_id, safe="", errors="replace")) <= LONGEST_TENANT


class ExchangeOutcome(StrEnum):
    """How an exchange ended, as seen on the wire."""

    COMPLETE = "complete"
    CLIENT_ABORT = "client_abort"
    UPSTREAM_ABORT = "upstream_abort"
    REFUSED = "refused"
    """The gateway answered itself (no such key, over budget); nothing reached an upstream."""
    LOST_END = "lost_end"
    """The gateway died before the end was written; what had passed until then is here."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as it was sent upstream, credentials replaced by keyed fingerprints."""

    method: str
    path: str
    """Path as the upstream saw it, without the query."""
    query: str
    headers: Headers
    """Names in lower case."""
    body: bytes = field(repr=False)
    """Still content-encoded."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response as the upstream gave it; the body may be cut short (see the outcome)."""

    status: int
    headers: Headers
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Who called, as the gateway's key registry knows them."""

    tenant_id: str
    app_id: str
    environment: str
    key_id: str
    """Public name of the client key, never the key."""
    purposes: tuple[str, ...] = ()
    """Purposes that this key grants by default; policy and consent may take away, never add."""


@dataclass(frozen=True, slots=True)
class SpoolPosition:
    """Where a record begins: one writer's segment and the byte offset in it."""

    writer: str
    segment: int
    offset: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its response, with times and the identity of the caller."""

    exchange_id: str
    """Made by the gateway, 32 hexadecimal digits, the first 12 being milliseconds since 1970."""
    client: ClientIdentity
    route: str
    """Name of the configured route; ``-`` for an intercepted host without one."""
    mode: str
    """base_url | forward | transparent | stdio; otlp and import for documents handed in whole"""
    upstream: str
    """scheme://host:port"""
    started_at: datetime
    first_byte_at: datetime | None
    """First byte of the response body or, without a body, its head; None when none came."""
    ended_at: datetime | None
    request: HttpRequest
    response: HttpResponse | None
    outcome: ExchangeOutcome
    position: SpoolPosition
    capture_note: str = ""
    """Why a body is not whole though the exchange was: ``opt-out``, ``answered-early`` …; else empty."""
    served: str = ""
    """The registered version that the gateway chose, ``name@version``; empty where it chose none."""
    shadow_of: str = ""
    """The exchange whose request was copied to another model here; nobody saw this answer."""
    artifacts: tuple[str, ...] = ()
    """What the gateway added to the request, ``name@version``; ``=id+id`` behind it names shown facts.
    The session's arms in trials are among them."""
    subjects: tuple[str, ...] | None = None
    """Whom the surrogates name that the gateway put into the request, as keyed pseudonyms; None where it
    put in none."""
    released_of: str = ""
    """The held exchange that this is, judged again; empty for what a gateway captured."""
    released_calls: tuple[tuple[str, str], ...] = ()
    """Of an exchange with several calls, those that were released: the id that each had at first, and its new
    one. Empty where all of it is to be judged."""
    part_of: str = ""
    """The exchange in the spool that this call came in with others; empty where it came alone."""
    schema_version: ClassVar[int] = SCHEMA_VERSION

    @property
    def first_id(self) -> str:
        """The id that it had at first: a release from quarantine has another, and the same step."""
        return self.released_of or self.exchange_id

    @property
    def is_context(self) -> bool:
        """Whether it only comes along, judged long ago: other calls of its exchange were released."""
        return bool(self.released_calls) and not self.released_of


def released_name(exchange_id: str) -> str:
    """Return the name under which a held exchange comes again when it is released; the same each time."""
    return exchange_id[:12] + hashlib.sha256(exchange_id.encode()).hexdigest()[:20]


def feedback_name(tenant_id: str, target_kind: str, target_id: str, body: JsonObject) -> str:
    """Return the name of feedback to which its client gave none: the hash of what it says."""
    said: JsonObject = {"tenant": tenant_id, "kind": target_kind, "id": target_id, "body": body}
    return content_hash(said)


ASKED_BY = "asked_by"
"""Field of the guard's feedback: the exchange that first asked a person for a tool call."""
APPROVERS = "approvals"
"""Source of the guard's feedback that tells what an approver answered."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """A reward, label, correction or comment that came through the feedback API."""

    feedback_id: str
    """Idempotency key: the client's own, or a hash of the content."""
    client: ClientIdentity
    received_at: datetime
    target_kind: str
    """response | step | trajectory | session | group"""
    target_id: str
    """For ``response`` the id that the model API gave to the client (``chatcmpl-…``, ``msg_…``)."""
    body: JsonObject
    """name, value, label, rationale, source_kind, source, confidence, observed_at, supersedes; and
    ``ASKED_BY``, which clients cannot send."""
    position: SpoolPosition
    schema_version: ClassVar[int] = SCHEMA_VERSION

    @property
    def is_said_anew(self) -> bool:
        """Whether it has no name but that of its content: who says the same again means it anew."""
        said = self.client.tenant_id, self.target_kind, self.target_id, self.body
        try:
            return self.feedback_id == feedback_name(*said)
        except ValueError:  # a span may tell NaN, which has no content hash
            return False


type SpoolRecord = Exchange | Feedback
