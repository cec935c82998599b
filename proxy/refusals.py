"""Requests that do not pass: answered in the provider's shape, some of them kept as refused."""

import time

from mitmproxy import http

from proxy.admitted import Admitted, Refused, mode_of
from proxy.answers import Reason, answer
from proxy.client_keys import UNKNOWN_CLIENT
from proxy.counters import Counters
from proxy.credentials import CREDENTIAL_HEADERS, RawFields, holds_client_key
from proxy.recording import Recording
from proxy.replies import answer_at_head, proxy_refusal, response_of
from proxy.rewriting import Rewritten, take_session
from proxy.routing import Router
from proxy.terms import Level
from proxy.wire import shape_of_errors
from trajectory.exchange import ExchangeOutcome

_KEPT_PER_SECOND = 50
_KEPT = frozenset(
    {
        Reason.NO_KEY,
        Reason.NO_MODEL,
        Reason.SPOOL_FULL,
        Reason.RATE,
        Reason.TOKENS,
        Reason.SESSION_STEPS,
    }
)
_SILENT = frozenset({b"HEAD", b"OPTIONS"})
"""Methods by which clients look whether anybody is there: there is no call to remember."""


class Refusals:
    """Answers refused requests."""

    def __init__(self, router: Router, counters: Counters, recording: Recording | None) -> None:
        self._router = router
        self._counters = counters
        self._recording = recording
        self._kept = (0, 0)

    def refuse(self, flow: http.HTTPFlow, refusal: Refused) -> None:
        """Answer a request ourselves, at its head: whatever its body is, it is not kept."""
        request, reason = flow.request, refusal.reason
        self._counters.refusals[reason] += 1
        if reason is Reason.NO_KEY and mode_of(flow.client_conn) == "forward":
            response = proxy_refusal()
        else:
            shape = shape_of_errors(request)
            response = response_of(answer(reason, shape, retry_after=refusal.retry_after))
        answer_at_head(flow, response)
        kept = reason in _KEPT and request.data.method not in _SILENT
        if kept and self._recording is not None:
            self._keep(self._recording, flow, response, refusal)

    def _keep(
        self, recording: Recording, flow: http.HTTPFlow, response: http.Response, refusal: Refused
    ) -> None:
        """Record that a request was refused, without its body; only so many each second."""
        second, kept = self._kept
        now = int(time.monotonic())
        kept = kept + 1 if second == now else 1
        self._kept = (now, kept)
        if kept > _KEPT_PER_SECOND:
            return
        path, plan = flow.request.data.path.partition(b"?")[0], refusal.plan
        if plan is None and mode_of(flow.client_conn) == "base_url":
            plan = self._router.by_path(take_session(path)[0])
        admitted = Admitted(
            refusal.client or UNKNOWN_CLIENT,
            plan or self._router.other,
            mode_of(flow.client_conn),
            Rewritten((), _without_odd_keys(flow.request.headers.fields)),
            path,
        )
        capture = recording.begin(flow, admitted, Level.METADATA, "refused")
        capture.response_head(response.status_code, response.headers.fields)
        capture.end(ExchangeOutcome.REFUSED)


def _without_odd_keys(fields: RawFields) -> RawFields:
    """Leave out client keys in headers where no credential is looked for."""
    return tuple(
        (name, value)
        for name, value in fields
        if name.lower() in CREDENTIAL_HEADERS or not holds_client_key(value)
    )
