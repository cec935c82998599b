"""How the record of a call begins: with the request's head, credentials replaced."""

import time

from mitmproxy import http

from proxy.admission import Admitted, named_host
from proxy.capture import Capture, Level, Recorder, new_exchange_id
from proxy.credentials import Fingerprints
from proxy.spool import records


class Recording:
    """Begins captures; there is one where the gateway captures at all."""

    def __init__(self, recorder: Recorder, fingerprints: Fingerprints) -> None:
        self.recorder = recorder
        self.fingerprints = fingerprints

    def begin(self, flow: http.HTTPFlow, admitted: Admitted, level: Level, note: str) -> Capture:
        """Return what records this call; nothing is written yet."""
        request, plan = flow.request.data, admitted.plan
        path, _, query = admitted.path.partition(b"?")
        host = request.host if admitted.mode != "transparent" else named_host(flow)
        exchange = new_exchange_id()
        served = "" if admitted.served is None else admitted.served.label
        head = records.request_head(
            exchange,
            started_at=time.time(),
            origin=plan.origin(
                admitted.client, admitted.mode, (request.scheme, host, request.port), served
            ),
            method=request.method,
            path=path,
            query=self.fingerprints.query(query) if query else b"",
            headers=self.fingerprints.block(admitted.rewritten.kept),
        )
        return Capture(
            self.recorder,
            exchange,
            head,
            level,
            note,
            mandatory=plan.mandatory,
            batch=plan.durability == "batch",
        )
