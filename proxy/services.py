"""What all exchanges of one worker share: admission, limits, counters, recording, and how many are in flight."""

import logging
from collections.abc import Sequence

from proxy.admission import AdmissionControl, AdmittedRequest
from proxy.clients.limits import Budgets
from proxy.guard.route import CallDecision, CallGuard
from proxy.recording.capture import Capture, write_signals
from proxy.recording.capture_factory import CaptureFactory
from proxy.responses import Reason
from proxy.routes.shadow import Shadows
from proxy.spool import SpoolUnavailableError
from proxy.telemetry.counters import Counters
from proxy.telemetry.spans import SpanExporter
from trajectory.errors import IntegrityError

_log = logging.getLogger(__name__)


class Services:
    """State that all exchanges of one worker share."""

    def __init__(
        self,
        admission: AdmissionControl,
        *,
        budgets: Budgets,
        counters: Counters,
        recording: CaptureFactory | None,
        tracing: SpanExporter | None = None,
        shadows: Shadows | None = None,
        calls: int = 4096,
        calls_per_key: int = 1024,
        body_bytes: int = 512 * 1024 * 1024,
    ) -> None:
        self.admission = admission
        self.calls: dict[str, int] = {}
        """Calls in flight by client key."""
        self._most = calls
        self._most_per_key = calls_per_key
        self.body_bytes = body_bytes
        """Bytes that the body of a request may have."""
        self._all = 0
        self.budgets = budgets
        self.counters = counters
        self.recording = recording
        self.tracing = tracing
        self.shadows = shadows

    def enter(self, admitted: AdmittedRequest) -> None:
        """Count a call in.

        Raises:
            RequestRefusal: as many are in flight as may be.
        """
        key_id, reason = admitted.client.key_id, None
        calls = self.calls.get(key_id, 0)
        if self._all >= self._most:
            reason = Reason.CALLS
        elif calls >= self._most_per_key:
            reason = Reason.CALLS_OF_KEY
        if reason is not None:
            raise admitted.refusal(reason)
        self._all += 1
        self.calls[key_id] = calls + 1

    def leave(self, admitted: AdmittedRequest) -> None:
        """Count a call out."""
        key_id = admitted.client.key_id
        self._all -= 1
        left = self.calls[key_id] - 1
        if left:
            self.calls[key_id] = left
        else:
            del self.calls[key_id]

    def fault(self, where: str, error: Exception) -> None:
        """Count an error of our own; its text may hold content, unless it names a damaged file."""
        self.counters.faults += 1
        damage = isinstance(error, IntegrityError)
        _log.error("%s fault: %s", where, error if damage else type(error).__name__)

    def tell(
        self,
        guard: CallGuard,
        admitted: AdmittedRequest,
        decisions: Sequence[CallDecision],
        capture: Capture | None,
    ) -> None:
        """Have the lake hear of decisions about tool calls, as it hears of feedback."""
        step_id = "" if capture is None else capture.exchange.hex()
        said = guard.signals(admitted.plan.name, decisions, step_id)
        if self.recording is None or capture is None:
            return
        try:
            spool = self.recording.recorder.spool
            write_signals(spool, admitted.client, said, step_id=step_id)
        except SpoolUnavailableError:
            self.counters.uncaptured["feedback"] += 1
