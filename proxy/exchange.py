"""One call: its request on the way out, its response on the way in, and its end."""

import logging
import time

from mitmproxy import http

from proxy.admission import AdmissionControl, Admitted, Mode
from proxy.capture import Capture
from proxy.counters import Counters
from proxy.heads import content_length
from proxy.limits import Budgets
from proxy.mitm.replies import response_of
from proxy.mitm.wire import forget_expectation, shape_of_errors
from proxy.model_versions import with_model
from proxy.recording import Recording
from proxy.responses import Reason, answer
from proxy.rewriting import rewrite_trailers
from proxy.route import Level, PreparedRoute
from proxy.shadow import Copied, Shadows
from proxy.spool import SpoolUnavailableError
from proxy.telemetry import Tracing
from proxy.tokens import (
    AddedFields,
    StreamStripper,
    TokenCheck,
    applies,
    ask,
    strip_json,
    stripping_stream,
)
from proxy.usage import UsageMeter, is_estimable
from proxy.websocket import WebSocketCapture
from trajectory.exchange import ExchangeOutcome


class InFlight:
    """One call; slots, because there is one for each."""

    __slots__ = (
        "asked",
        "capture",
        "check",
        "conversation",
        "key_id",
        "meter",
        "mode",
        "plan",
        "sending",
        "sent_bytes",
        "started",
    )

    def __init__(self, plan: PreparedRoute, mode: Mode) -> None:
        self.capture: Capture | None = None
        """What records it; None where nothing is kept."""
        self.conversation: WebSocketCapture | None = None
        """Its WebSocket messages, once there are any."""
        self.plan = plan
        self.mode = mode
        self.sending: Sending | None = None
        """Its request on the way."""
        self.started = time.monotonic()
        self.asked: AddedFields | None = None
        """What was asked of the upstream that the client did not ask for."""
        self.check: TokenCheck | None = None
        self.meter: UsageMeter | None = None
        """Counts tokens, for keys that have a budget of them."""
        self.key_id = ""
        self.sent_bytes = 0
        """Length of the request's body, where its head says it and it is text."""


_log = logging.getLogger(__name__)


class Endings:
    """Ends calls, each once."""

    def __init__(self, counters: Counters, budgets: Budgets, tracing: Tracing | None) -> None:
        self._counters = counters
        self._budgets = budgets
        self._tracing = tracing

    def end(self, flow: http.HTTPFlow, live: InFlight, outcome: ExchangeOutcome) -> None:
        """End a call; whatever fails here, the call itself is over."""
        live.sending = None
        self._counters.exchanges[live.plan.name, live.mode, outcome.value] += 1
        self._counters.observe(time.monotonic() - live.started)
        if live.meter is not None:
            self._spend(live, live.meter)
        if live.check is not None and outcome is ExchangeOutcome.COMPLETE:
            live.plan.note_tokens(sound=live.check.sound)
        if self._tracing is not None:
            self._trace(self._tracing, flow, live, outcome)
        if live.capture is not None and not live.capture.ended:
            try:
                live.capture.end(outcome)
            except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
                live.capture.abandon(error)

    def _trace(
        self, tracing: Tracing, flow: http.HTTPFlow, live: InFlight, outcome: ExchangeOutcome
    ) -> None:
        level = "none" if live.capture is None else live.capture.level.name.lower()
        try:
            tracing.exchange(
                flow,
                route=live.plan.name,
                mode=live.mode,
                outcome=outcome.value,
                level=level,
                seconds=time.monotonic() - live.started,
            )
        except Exception as error:  # noqa: BLE001 - the call goes on whatever tracing does
            self._counters.faults += 1
            _log.error("tracing fault: %s", type(error).__name__)

    def _spend(self, live: InFlight, meter: UsageMeter) -> None:
        """Take the tokens of an answer off the key's budget."""
        if not meter.answered:
            return
        if not meter.reported:
            self._counters.unlimited["estimated"] += 1
        self._budgets.spend(live.key_id, meter.tokens(live.sent_bytes))


_HELD_BYTES = 1024 * 1024
"""Responses of durable routes up to this length are held back whole until they are on the disk."""
_ANSWERS = frozenset({101, *range(200, 300)})
"""Statuses of answers, the beginning of a WebSocket conversation among them."""


class Passing:
    """Lets responses through; each step works for one call."""

    def __init__(self, counters: Counters, recording: Recording | None) -> None:
        self._counters = counters
        self._recording = recording

    def head(self, response: http.Response, live: InFlight) -> None:
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
        self, response: http.Response, live: InFlight, capture: Capture, recording: Recording
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
    def _strip_tokens(
        response: http.Response, live: InFlight, capture: Capture, asked: AddedFields
    ) -> None:
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
    def whole(response: http.Response, live: InFlight) -> None:
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

    async def durable(self, flow: http.HTTPFlow, live: InFlight, recording: Recording) -> None:
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


class Sending:
    """The way of one request. Until its upstream is connected nothing of it has been sent."""

    __slots__ = (
        "_admission",
        "_admitted",
        "_connected",
        "_counters",
        "_flow",
        "_kept",
        "_live",
        "_read",
        "_recorded",
        "_set",
        "_shadows",
    )

    def __init__(
        self,
        flow: http.HTTPFlow,
        live: InFlight,
        admitted: Admitted,
        *,
        admission: AdmissionControl,
        counters: Counters,
        shadows: Shadows | None = None,
    ) -> None:
        self._flow = flow
        self._live = live
        self._admitted = admitted
        self._admission = admission
        self._counters = counters
        self._shadows = shadows
        self._kept: bytes | None = None
        self._recorded: tuple[Recording, Level, str] | None = None
        self._set: dict[str, str] = {}
        self._connected = False
        self._read = False
        self._head()

    def _head(self) -> None:
        """Give the request the head with which it goes upstream."""
        request = self._flow.request
        request.headers.fields = self._admitted.rewritten.sent
        request.data.path = self._admitted.path
        for name, value in self._set.items():
            request.headers[name] = value

    def _header(self, name: str, value: str) -> None:
        """Set a header, wherever the request goes in the end."""
        self._set[name] = value
        self._flow.request.headers[name] = value

    def meter(self) -> None:
        """Count the tokens of the answer; only what is not compressed can be read as it passes."""
        live = self._live
        live.meter = UsageMeter()
        live.key_id = self._admitted.client.key_id
        headers = self._flow.request.headers
        length = headers.get("content-length", "")
        if length.isdigit() and is_estimable(headers.get("content-type", "").encode()):
            live.sent_bytes = int(length)
        self._header("accept-encoding", "identity")

    def record(self, recording: Recording, level: Level, note: str) -> None:
        """Begin to record the request; where that must be, a fault is raised."""
        request, self._live.capture = self._flow.request, None
        try:
            capture = recording.begin(self._flow, self._admitted, level, note)
        except Exception as error:
            recording.recorder.fault(error)
            if self._admitted.plan.mandatory:
                raise
            return
        self._live.capture = capture
        self._recorded = recording, level, note
        if request.stream is not False:
            request.stream = capture.on_request

    def _asks(self) -> bool:
        """Tell from the request's head whether token ids can be asked for in its body."""
        request = self._flow.request
        lower = [(name.lower(), value) for name, value in request.headers.fields]
        return applies(request.data.method, self._admitted.path, lower)

    def prepare_to_ask(self) -> None:
        """Buffer a request to whose upstream token ids may be asked for."""
        if self._asks():
            self._flow.request.stream = False
            self._header("accept-encoding", "identity")

    def read_whole(self) -> None:
        """Note that the request has been read; a buffered one has yet to be sent."""
        self._read = True
        request = self._flow.request
        if request.trailers:
            fields = rewrite_trailers(request.trailers.fields, keyed=self._admitted.plan.keyed)
            request.trailers = http.Headers(fields) if fields else None
        if request.stream is False:
            self._complete()
        if self._connected and self._live.capture is not None:
            self._live.capture.request_done()

    def _complete(self) -> None:
        """Add to a buffered request what the engine is to be told beside it."""
        request, live = self._flow.request, self._live
        body = kept = request.raw_content or b""
        if live.capture is not None and live.plan.asks_tokens and self._asks():
            live.asked = ask(body)
            if live.asked is not None:
                body = kept = live.asked.body
        if self._admitted.served is not None:
            body = with_model(body, self._admitted.served.label)
        if body is not kept or live.asked is not None:
            request.data.content = body
            self._header("content-length", str(len(body)))
        self._kept = kept

    def connected(self) -> None:
        """Record the request that is about to be sent; one that streams is recorded as it passes."""
        self._connected = True
        capture = self._live.capture
        if capture is None or not self._read:
            return
        kept = self._kept if self._kept is not None else self._flow.request.raw_content or b""
        try:
            capture.on_request(kept)
            capture.request_done()
            self._copy(capture, kept)
        except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
            capture.abandon(error)

    def _copy(self, capture: Capture, body: bytes) -> None:
        """Give another version a copy, where the route says so and the client did not opt out."""
        admitted = self._admitted
        serving, served = admitted.plan.serving, admitted.served
        if self._shadows is None or serving is None or served is None:
            return
        version = serving.copies_to(served) if capture.level == Level.FULL else None
        if version is None:
            return
        own = len(served.target.upstream.path.encode())
        self._shadows.send(
            Copied(
                capture.exchange,
                admitted.client,
                admitted.plan.name,
                admitted.mode,
                admitted.path[own:],
                admitted.rewritten.sent,
                admitted.rewritten.kept,
                body,
            ),
            version,
        )

    def another(self) -> bool:
        """Point the request at another upstream of its route; False where there is none."""
        try:
            admitted = self._admission.elsewhere(self._flow.request, self._admitted)
            if admitted is None:
                return False
            self._admitted = admitted
            self._head()
            self._expectation()
            if self._recorded is not None:
                self.record(*self._recorded)
        except Exception as error:  # noqa: BLE001 - the call is answered as one that failed
            self._counters.faults += 1
            _log.error("fault in finding another upstream: %s", type(error).__name__)
            return False
        self._counters.elsewhere += 1
        return True

    def _expectation(self) -> None:
        """A buffered request has had its ``100``; of another the new upstream decides."""
        request = self._flow.request
        if request.stream is False:
            request.headers.pop("expect", None)
        forget_expectation(request)
