"""Starts the record of an exchange with the request's head, credentials replaced."""

from functools import partial

from proxy.admission import AdmittedRequest
from proxy.clients.credentials import Fingerprints
from proxy.heads import VALUE_MARK, HeadTemplate, with_values
from proxy.recording.capture import Capture
from proxy.recording.recorder import Recorder
from proxy.routes.route import Level
from proxy.routes.upstream_request import RewrittenHeaders
from proxy.spool import records


class CaptureFactory:
    """Begins captures; there is one where the gateway captures at all."""

    def __init__(self, recorder: Recorder, fingerprints: Fingerprints) -> None:
        self.recorder = recorder
        self.fingerprints = fingerprints

    def begin(
        self,
        admitted: AdmittedRequest,
        method: bytes,
        artifacts: tuple[str, ...],
        subjects: tuple[str, ...] | None,
        level: Level,
        note: str,
    ) -> Capture:
        """Return what records this exchange; nothing is written yet.

        Args:
            admitted: the request.
            method: of the request.
            artifacts: what was added to the request.
            subjects: whom its surrogates name; None where it has none.
            level: how much is recorded.
            note: why that is not everything.
        """
        head = partial(self._head, admitted, method, artifacts, subjects)
        capture = Capture(self.recorder, head, level, note, admitted.plan)
        if admitted.plan.mandatory:
            capture.prepare()
        return capture

    def tell(
        self,
        capture: Capture,
        admitted: AdmittedRequest,
        method: bytes,
        artifacts: tuple[str, ...],
        subjects: tuple[str, ...] | None,
    ) -> None:
        """Have a capture say what became of its request since; nothing of it is written yet."""
        capture.begin_with(partial(self._head, admitted, method, artifacts, subjects))
        if admitted.plan.mandatory:
            capture.prepare()

    def again(
        self,
        capture: Capture,
        admitted: AdmittedRequest,
        artifacts: tuple[str, ...],
        subjects: tuple[str, ...] | None,
    ) -> Capture:
        """Return what records a connection's next turn, with whom its surrogates name."""
        return capture.again(self._origin(admitted, artifacts, subjects))

    def _head(
        self,
        admitted: AdmittedRequest,
        method: bytes,
        artifacts: tuple[str, ...],
        subjects: tuple[str, ...] | None,
        exchange: bytes,
        started_at: float,
    ) -> bytes:
        """Return the record of a request's head; one that repeats another differs in few values."""
        standing = admitted.standing
        if standing is None or subjects is not None:
            return self._whole_head(admitted, method, artifacts, subjects, exchange, started_at)
        if standing.recorded is None:
            marks = [VALUE_MARK] * len(standing.kept_at)
            kept = with_values(admitted.rewritten.kept, standing.kept_at, marks)
            marked = admitted._replace(rewritten=RewrittenHeaders((), kept))
            whole = self._whole_head(marked, method, (), None, exchange, started_at)
            standing.recorded = HeadTemplate(whole[records.BEGIN_BYTES :])
        rest = standing.recorded.fill(admitted.values)
        if artifacts:
            rest = records.with_origin(rest, self._origin(admitted, artifacts, None))
        return records.repeated_head(exchange, started_at, rest)

    def _whole_head(
        self,
        admitted: AdmittedRequest,
        method: bytes,
        artifacts: tuple[str, ...],
        subjects: tuple[str, ...] | None,
        exchange: bytes,
        started_at: float,
    ) -> bytes:
        """Return the record of a request's head, credentials replaced."""
        path, _, query = admitted.path.partition(b"?")
        return records.request_head(
            exchange,
            started_at,
            origin=self._origin(admitted, artifacts, subjects),
            method=method,
            path=path,
            query=self.fingerprints.query(query) if query else b"",
            headers=self.fingerprints.block(admitted.rewritten.kept),
        )

    @staticmethod
    def _origin(
        admitted: AdmittedRequest, artifacts: tuple[str, ...], subjects: tuple[str, ...] | None
    ) -> bytes:
        served = "" if admitted.served is None else admitted.served.label
        if admitted.arm:
            artifacts = (*artifacts, admitted.arm)
        return admitted.plan.origin(
            admitted.client, admitted.mode, admitted.origin, served, artifacts, subjects
        )
