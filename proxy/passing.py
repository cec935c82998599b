"""A response on its way to the client: recorded as it passes, held back where it must be durable."""

from mitmproxy import http

from proxy.answers import Reason, answer
from proxy.capture import Capture
from proxy.counters import Counters
from proxy.heads import content_length
from proxy.live import Live
from proxy.recording import Recording
from proxy.replies import response_of
from proxy.spool import SpoolUnavailableError
from proxy.tokens import Asked, StreamStripper, TokenCheck, strip_json, stripping_stream
from proxy.wire import shape_of_errors

_HELD_BYTES = 1024 * 1024
"""Responses of durable routes up to this length are held back whole until they are on the disk."""
_ANSWERS = frozenset({101, *range(200, 300)})
"""Statuses of answers, the beginning of a WebSocket conversation among them."""


class Passing:
    """Lets responses through; each step works for one call."""

    def __init__(self, counters: Counters, recording: Recording | None) -> None:
        self._counters = counters
        self._recording = recording

    def head(self, response: http.Response, live: Live) -> None:
        """Stream the response, whatever its type; record and meter it as it passes."""
        response.stream = True
        self._counters.statuses[live.plan.name, response.status_code // 100] += 1
        if live.capture is not None and self._recording is not None:
            self._tee(response, live, live.capture, self._recording)
        if response.status_code not in _ANSWERS:
            live.meter = None  # an upstream that fails or refuses has spent nothing
        if live.meter is not None and response.stream is not False:
            response.stream = live.meter.tee(response.stream)

    def _tee(
        self, response: http.Response, live: Live, capture: Capture, recording: Recording
    ) -> None:
        """Record the response as it passes; durable ones of known length are held back whole."""
        durable, length = live.plan.durability == "durable", -1
        try:
            data = response.data
            if durable or not recording.recorder.patient:
                length = content_length(data.headers.fields)
            capture.response_head(data.status_code, data.headers.fields, length=length)
        except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
            capture.abandon(error)
            length = -1
        if live.plan.step_header:
            step = (b"x-headrace-step", capture.exchange.hex().encode())
            response.headers.fields = (*response.headers.fields, step)
        response.stream = capture.on_response
        if live.asked is not None:
            self._strip_tokens(response, live, capture, live.asked)
        if durable and 0 < length <= _HELD_BYTES:
            response.stream = False

    @staticmethod
    def _strip_tokens(response: http.Response, live: Live, capture: Capture, asked: Asked) -> None:
        """Give the client what it asked for; what is encoded or of another type passes whole."""
        if response.status_code == 200 and asked.token_ids:
            live.check = TokenCheck()
        kind = response.headers.get("content-type", "")
        if response.headers.get("content-encoding", "identity") != "identity":
            return
        if kind.startswith("text/event-stream") and "content-length" not in response.headers:
            response.stream = stripping_stream(
                capture.on_response, StreamStripper(asked, live.check)
            )
        elif kind.startswith("application/json"):
            response.stream = False

    @staticmethod
    def whole(response: http.Response, live: Live) -> None:
        """Record a response that was held back, and take out what the client did not ask for."""
        body = response.raw_content or b""
        if live.meter is not None:
            live.meter.feed(body)
        if live.capture is None:
            return
        live.capture.on_response(body)
        if live.asked is not None:
            response.data.content = stripped = strip_json(body, live.asked, live.check)
            if "content-length" in response.headers:
                response.headers["content-length"] = str(len(stripped))

    async def durable(self, flow: http.HTTPFlow, live: Live, recording: Recording) -> None:
        """Hold the end of the response until its record is on the disk.

        Where that fails and capture is mandatory, a response that was held back whole is not
        given; of a streamed one the client has all but the end.
        """
        try:
            await recording.recorder.synced()
        except Exception as error:  # noqa: BLE001 - counted; the client has waited long enough
            if not isinstance(error, SpoolUnavailableError):
                recording.recorder.fault(error)
            self._counters.uncaptured["not-durable"] += 1
            response = flow.response
            if live.plan.mandatory and response is not None and response.stream is False:
                shape = shape_of_errors(flow.request)
                flow.response = response_of(answer(Reason.SPOOL_FULL, shape))
                self._counters.refusals[Reason.SPOOL_FULL] += 1
