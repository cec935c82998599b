"""How the record of a call begins: with the request's head, credentials replaced."""

from functools import partial

from mitmproxy import http

from proxy.admission import Admitted, named_host
from proxy.capture import Capture
from proxy.credentials import Fingerprints
from proxy.recorder import Recorder
from proxy.route import Level
from proxy.spool import records


class Recording:
    """Begins captures; there is one where the gateway captures at all."""

    def __init__(self, recorder: Recorder, fingerprints: Fingerprints) -> None:
        self.recorder = recorder
        self.fingerprints = fingerprints

    def begin(self, flow: http.HTTPFlow, admitted: Admitted, level: Level, note: str) -> Capture:
        """Return what records this call; nothing is written yet."""
        plan, request = admitted.plan, flow.request.data
        host = request.host if admitted.mode != "transparent" else named_host(flow)
        capture = Capture(
            self.recorder,
            partial(self._head, admitted, request.method, (request.scheme, host, request.port)),
            level,
            note,
            plan,
        )
        if plan.mandatory:
            capture.prepare()
        return capture

    def _head(
        self,
        admitted: Admitted,
        method: bytes,
        upstream: tuple[bytes, str, int],
        exchange: bytes,
        started_at: float,
    ) -> bytes:
        """Return the record of a request's head, credentials replaced."""
        path, _, query = admitted.path.partition(b"?")
        served = "" if admitted.served is None else admitted.served.label
        return records.request_head(
            exchange,
            started_at,
            origin=admitted.plan.origin(admitted.client, admitted.mode, upstream, served),
            method=method,
            path=path,
            query=self.fingerprints.query(query) if query else b"",
            headers=self.fingerprints.block(admitted.rewritten.kept),
        )
