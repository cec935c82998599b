"""A request on its way to its upstream: recorded once it is sent, sent elsewhere where need be."""

import logging

from mitmproxy import http

from proxy.admission import Admission
from proxy.admitted import Admitted
from proxy.capture import Capture
from proxy.counters import Counters
from proxy.live import Live
from proxy.recording import Recording
from proxy.rewriting import rewrite_trailers
from proxy.serving import with_model
from proxy.shadowing import Copied, Shadows
from proxy.terms import Level
from proxy.tokens import applies, ask
from proxy.usage import UsageMeter, is_estimable
from proxy.wire import forget_expectation

_log = logging.getLogger(__name__)


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
        live: Live,
        admitted: Admitted,
        *,
        admission: Admission,
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
