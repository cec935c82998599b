"""The gateway's own API on the base-URL port: feedback, trace exports and health."""

import json
import time
from collections.abc import Awaitable

from mitmproxy import http

from proxy.answers import Answer, Reason, Shape, answer
from proxy.capture import new_exchange_id
from proxy.config import ENDPOINT_PREFIX
from proxy.counters import Counters
from proxy.credentials import Fingerprints, presented_key
from proxy.feedback import FeedbackError, FeedbackItem, read_feedback_items
from proxy.identity import KeyRegistry
from proxy.recorder import Recorder
from proxy.spool import RecordKind, SpoolUnavailableError, records
from proxy.traces import Traces
from trajectory.canonical import JsonValue
from trajectory.exchange import ClientIdentity
from trajectory.telemetry.calls import TRACES_PATH

FEEDBACK_PATH = f"{ENDPOINT_PREFIX}v1/feedback"
HEALTH_PATH = f"{ENDPOINT_PREFIX}v1/health"
MAX_BODY_BYTES = 4 * 1024 * 1024

_PREFIX = ENDPOINT_PREFIX.encode()
_TRACES = TRACES_PATH.encode()


def _json(status: int, value: JsonValue) -> Answer:
    body = json.dumps(value).encode()
    headers = ((b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)))
    return Answer(status, headers, body)


def _problem(status: int, text: str) -> Answer:
    return _json(status, {"error": {"message": text, "type": "invalid_request_error"}})


def is_endpoint(path: bytes) -> bool:
    """Tell whether the gateway answers this path itself."""
    return path.startswith(_PREFIX) or path.partition(b"?")[0] == _TRACES


class Endpoints:
    """Answers requests to the gateway itself."""

    def __init__(
        self,
        registry: KeyRegistry,
        recorder: Recorder | None,
        counters: Counters,
        fingerprints: Fingerprints,
    ) -> None:
        self._traces = Traces(recorder, counters, fingerprints)
        self._registry = registry
        self._recorder = recorder
        self._counters = counters

    def answer(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Answer a request whose body has been read."""
        path = flow.request.data.path.partition(b"?")[0].decode("latin-1")
        method = flow.request.data.method
        if path == HEALTH_PATH:
            _reply(flow, _json(200, {"status": "ok"}))
        elif path not in (FEEDBACK_PATH, TRACES_PATH):
            _reply(flow, answer(Reason.NO_ROUTE, Shape.OPENAI))
        elif method != b"POST":
            _reply(flow, _problem(405, f"{path} takes POST"))
        else:
            presented, _ = presented_key(flow.request.headers.fields)
            client = self._registry.authenticate(presented)
            if client is None:
                self._counters.refusals[Reason.NO_KEY] += 1
                _reply(flow, answer(Reason.NO_KEY, Shape.OPENAI))
            elif path == TRACES_PATH:
                return self._take_traces(flow, client)
            else:
                return self._feedback(flow, client)
        return None

    async def _take_traces(self, flow: http.HTTPFlow, client: ClientIdentity) -> None:
        _reply(flow, await self._traces.take(flow.request, client))

    async def _feedback(self, flow: http.HTTPFlow, client: ClientIdentity) -> None:
        """Take feedback; it is on the disk before the client hears that it was accepted."""
        try:
            raw = flow.request.content or b""
        except ValueError:
            _reply(flow, _problem(400, "the body's content-encoding cannot be decoded"))
            return
        if len(raw) > MAX_BODY_BYTES:
            _reply(flow, _problem(413, f"a request may have {MAX_BODY_BYTES} bytes at most"))
            return
        if self._recorder is None:
            _reply(flow, _problem(503, "this gateway captures nothing, feedback neither"))
            return
        try:
            items = read_feedback_items(raw, tenant_id=client.tenant_id)
            for item in items:
                self._recorder.spool.append(*_record(item, client))
            await self._recorder.spool.synced()
        except FeedbackError as error:
            _reply(flow, _problem(400, str(error)))
        except SpoolUnavailableError:
            self._counters.uncaptured["feedback"] += 1
            _reply(flow, answer(Reason.SPOOL_FULL, Shape.OPENAI))
        else:
            self._counters.feedback += len(items)
            names: list[JsonValue] = [item.feedback_id for item in items]
            _reply(flow, _json(202, {"accepted": len(items), "feedback_ids": names}))


def _record(item: FeedbackItem, client: ClientIdentity) -> tuple[int, bytes]:
    record = records.feedback(
        new_exchange_id(),
        client,
        received_at=time.time(),
        feedback_id=item.feedback_id,
        target_kind=item.target_kind,
        target_id=item.target_id,
        body=item.body,
    )
    return RecordKind.FEEDBACK, record


def _reply(flow: http.HTTPFlow, reply: Answer) -> None:
    flow.response = http.Response.make(
        reply.status, reply.body, http.Headers([(n, v) for n, v in reply.headers])
    )
