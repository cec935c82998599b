"""The upstream's side of a call: requests are sent, answers of all kinds are read."""

from collections.abc import Callable
from typing import Any

from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import _http1
from mitmproxy.proxy.layers.http._events import (
    HttpEvent,
    RequestEndOfMessage,
    RequestHeaders,
    RequestTrailers,
    ResponseTrailers,
)

from proxy.mitm.wire.bodies import Commands, TrailerConnection
from proxy.mitm.wire.marks import give_expectation_back


class PatientClient(TrailerConnection, _http1.Http1Client):
    """Informational responses go to the client as they come, the final one is waited for."""

    ReceiveTrailers = ResponseTrailers

    def send(self, event: HttpEvent) -> Commands:
        """Send an event; what stock code does not do well is done here."""
        own = _OWN.get(type(event))
        yield from (super().send(event) if own is None else own(self, event))

    def send_head(self, event: RequestHeaders) -> Commands:
        """Send a request's head, with the ``Expect`` that its client sent."""
        give_expectation_back(event.request)
        yield from super().send(event)

    def keep_trailers(self, event: RequestTrailers) -> Commands:
        """Keep trailers for the body's end."""
        self.unsent = event.trailers
        yield from ()

    def send_end(self, event: RequestEndOfMessage) -> Commands:
        """End a body, with its trailers."""
        last = self.last_chunk(self.request) if self.request is not None else None
        if last is None:
            yield from super().send(event)
        else:
            yield last
            yield from self.mark_done(request=True)

    def read_headers(self, event: events.ConnectionEvent) -> Commands:
        """Read a response's head, after any 1xx heads but 101."""
        if isinstance(event, events.DataReceived) and self.request is not None:
            while self._informational():
                lines = self.buf.maybe_extract_lines()
                if lines is None:
                    return
                if self.request.http_version == "HTTP/1.1":
                    head = b"".join(bytes(line) + b"\r\n" for line in lines)
                    yield commands.SendData(self.context.client, head + b"\r\n")
        yield from super().read_headers(event)

    def _informational(self) -> bool:
        start = bytes(self.buf._data[:12])
        return start.startswith((b"HTTP/1.1 1", b"HTTP/1.0 1")) and start[9:12] != b"101"


_OWN: dict[type[HttpEvent], Callable[[PatientClient, Any], Commands]] = {
    RequestHeaders: PatientClient.send_head,
    RequestTrailers: PatientClient.keep_trailers,
    RequestEndOfMessage: PatientClient.send_end,
}
