"""Refused requests: what the client hears, and what is kept of it."""

import time

from proxy.admission import AdmittedRequest, Mode, RequestRefusal
from proxy.clients.credentials import CREDENTIAL_HEADERS, RawFields, holds_client_key
from proxy.clients.keys import UNKNOWN_CLIENT
from proxy.recording.capture_factory import CaptureFactory
from proxy.responses import LocalReply, Reason, answer
from proxy.routes.route import Level
from proxy.routes.router import Router
from proxy.routes.upstream_request import RewrittenHeaders, take_session
from proxy.telemetry.counters import Counters
from trajectory.exchange import ExchangeOutcome

_KEPT_PER_SECOND = 50
_KEPT = frozenset(
    {
        Reason.NO_KEY,
        Reason.NO_MODEL,
        Reason.SPOOL_FULL,
        Reason.RATE,
        Reason.TOKENS,
        Reason.MONEY,
        Reason.SESSION_STEPS,
        Reason.UNCOUNTED,
        Reason.UNREADABLE,
    }
)
_SILENT = frozenset({b"HEAD", b"OPTIONS"})
"""Methods by which clients look whether anybody is there: there is no call to remember."""
_PROXY_TEXT = (
    b"Headrace: this proxy needs a client key in Proxy-Authorization; see `headrace env --proxy`.\n"
)
PROXY_REFUSAL = LocalReply(
    407,
    (
        (b"proxy-authenticate", b'Basic realm="headrace"'),
        (b"content-type", b"text/plain"),
        (b"content-length", b"%d" % len(_PROXY_TEXT)),
    ),
    _PROXY_TEXT,
)
"""What a client of the forward proxy hears that presents no key."""


class Refusals:
    """Answers refused requests at their heads: whatever their bodies are, they are not kept."""

    def __init__(
        self, router: Router, counters: Counters, recording: CaptureFactory | None
    ) -> None:
        self._router = router
        self._counters = counters
        self._recording = recording
        self._kept = (0, 0)

    def refuse(
        self,
        refusal: RequestRefusal,
        mode: Mode,
        method: bytes,
        target: bytes,
        fields: RawFields,
        origin: tuple[bytes, str, int],
    ) -> LocalReply:
        """Count a refused request, record it where that tells something, and return the answer."""
        reason = refusal.reason
        self._counters.refusals[reason] += 1
        if reason is Reason.NO_KEY and mode == "forward":
            reply = PROXY_REFUSAL
        else:
            reply = answer(reason, refusal.shape, retry_after=refusal.retry_after)
        if reason in _KEPT and method not in _SILENT and self._recording is not None:
            self._keep(self._recording, refusal, reply, mode, method, target, fields, origin)
        return reply

    def _keep(
        self,
        recording: CaptureFactory,
        refusal: RequestRefusal,
        reply: LocalReply,
        mode: Mode,
        method: bytes,
        target: bytes,
        fields: RawFields,
        origin: tuple[bytes, str, int],
    ) -> None:
        """Record that a request was refused, without its body; only so many each second."""
        second, kept = self._kept
        now = int(time.monotonic())
        kept = kept + 1 if second == now else 1
        self._kept = (now, kept)
        if kept > _KEPT_PER_SECOND:
            return
        path, plan = target.partition(b"?")[0], refusal.plan
        if plan is None and mode == "base_url":
            plan = self._router.by_path(take_session(path)[0])
        admitted = AdmittedRequest(
            refusal.client or UNKNOWN_CLIENT,
            plan or self._router.other,
            mode,
            RewrittenHeaders((), _without_odd_keys(fields)),
            path,
            origin,
            fields,
        )
        capture = recording.begin(admitted, method, (), None, Level.METADATA, "refused")
        capture.response_head(reply.status, reply.headers)
        capture.end(ExchangeOutcome.REFUSED)


def _without_odd_keys(fields: RawFields) -> RawFields:
    """Leave out client keys in headers where no credential is looked for."""
    return tuple(
        (name, value)
        for name, value in fields
        if not holds_client_key(name.lower())
        and (name.lower() in CREDENTIAL_HEADERS or not holds_client_key(value))
    )
