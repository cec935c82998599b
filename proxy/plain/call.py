"""One call of the plain listener: it is admitted, captured, goes to its upstream, and ends.

Read it in the order of a call: the request from its client, the upstream that it goes to, and the
end of both. A :class:`ResponseRelay` brings the response back. The gateway answers itself where it
refuses a request, where its upstream cannot be reached, and for its own API.
"""

from typing import Protocol

from proxy.admission import RequestRefusal
from proxy.api.endpoints import Endpoints
from proxy.exchange import InFlight
from proxy.guard.answers import STREAM_FIELDS, as_events
from proxy.plain import messages
from proxy.plain.known_head import KnownHead
from proxy.plain.messages import (
    Body,
    MalformedMessageError,
    RequestHead,
)
from proxy.plain.relay import Receiver, RelayGround, ResponseRelay
from proxy.plain.upstreams import UpstreamConnection, UpstreamPool
from proxy.recording.capture import Capture
from proxy.refusals import Refusals
from proxy.responses import LocalReply, Reason, answer
from proxy.services import Services
from trajectory.dialects.errors import Shape
from trajectory.exchange import ClientIdentity, ExchangeOutcome

_UNSENT_BYTES = 256 * 1024
"""Of a request's body that waits for its upstream's connection."""
_DRAINED_BYTES = 64 * 1024 * 1024
"""Of a refused request's body so much is read on: who is cut off while sending may miss the answer."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NOWHERE = (b"http", "-", 0)


class CallGround(RelayGround, Protocol):
    """State that all calls of one listener share."""

    services: Services
    refusals: Refusals
    endpoints: Endpoints
    pool: UpstreamPool


class Client(Receiver, Protocol):
    """The connection that a call came on."""

    name: bytes
    call: "ClientCall | None"
    is_full: bool
    known: bool

    def end_call(self, excess: bytes, *, keep: bool) -> None:
        """Go on after a call, with what came behind it."""

    def close(self) -> None:
        """Close once all has been written."""

    def reset(self) -> None:
        """Close once all has been written, as a connection that broke."""

    def abort(self) -> None:
        """Close at once."""


class ClientCall:
    """One request of a client, until its response is there."""

    __slots__ = (
        "_body",
        "_caller",
        "_capture",
        "_client",
        "_drained",
        "_ground",
        "_head",
        "_keeps_alive",
        "_known",
        "_live",
        "_relay",
        "_replied",
        "_size",
        "_streams",
        "_unsent",
        "_upstream",
        "is_read",
    )

    def __init__(
        self, ground: CallGround, client: Client, head: RequestHead, known: KnownHead | None = None
    ) -> None:
        """Begin; ``known`` is what is remembered of the head."""
        self._ground = ground
        self._client = client
        self._head = head
        self._known = known
        self._keeps_alive = head.keeps_alive
        self._body: Body = head.body()
        self.is_read = False
        """The request has been read to its end."""
        self._live: InFlight | None = None
        self._capture: Capture | None = None
        self._upstream: UpstreamConnection | None = None
        self._unsent: list[bytes] | None = []
        """Of the request's body, until it goes out as it comes."""
        self._size = 0
        self._caller: ClientIdentity | None = None
        """Who asks the gateway's own API."""
        self._relay: ResponseRelay | None = None
        """Takes the response of the upstream that it has gone to."""
        self._streams = False
        """Its answer has begun as a stream of events, while it waited for a person."""
        self._replied = False
        """The gateway has answered itself; the rest of the request is read and thrown away."""
        self._drained = 0

    # The request.

    def begin(self, data: bytes) -> None:
        """Admit the request or refuse it, and read what has come of its body."""
        head, ground, known = self._head, self._ground, self._known
        if known is not None and known.stands:
            self._try_to_admit()
        elif head.method == b"CONNECT" or (head.target == b"*" and head.method != b"OPTIONS"):
            self._reply(answer(Reason.BAD_REQUEST, Shape.OPENAI))
        elif ground.endpoints.takes(head.target):
            told = ground.endpoints.at_head(head.method, head.target, head.fields)
            if isinstance(told, LocalReply):
                self._reply(told)
            else:
                self._caller = told
                self._client.known = True
                self._expectation()
        else:
            self._try_to_admit()
        self.request_data(data)
        # What has come of the body goes out with the head.
        if self._live is not None and not self._live.reads_whole:
            self._connect()

    def _try_to_admit(self) -> None:
        try:
            self._admit()
        except RequestRefusal as refusal:
            self._refuse(refusal)
        except Exception as error:  # noqa: BLE001 - whatever it is, the request must not pass
            self._ground.services.fault("admission", error)
            self._refuse(RequestRefusal(Reason.FAULT))

    def _admit(self) -> None:
        head, services, known = self._head, self._ground.services, self._known
        admission = services.admission
        admitted = known.admit(admission, head) if known is not None else None
        if admitted is None:
            admitted = admission.admit_base_url(
                head.method, head.target, head.fields, stick=self._client.name
            )
            if known is not None:
                known.admitted(admission.standing(admitted, known.changing))
        level, note = admission.level(admitted, head.fields)
        live = InFlight(services, admitted, head.method, listener="plain")
        live.begin(level, note, head.length or 0)
        self._live, self._capture = live, live.capture
        self._client.known = True
        if live.reads_whole:
            self._expectation()

    def _refuse(self, refusal: RequestRefusal) -> None:
        head, ground = self._head, self._ground
        self._live = None
        reply = ground.refusals.refuse(
            refusal, "base_url", head.method, head.target, head.fields, _NOWHERE
        )
        self._reply(reply)

    def _expectation(self) -> None:
        """Tell a client to send the body that must be read whole."""
        if self._head.expects and not self._body.done:
            self._client.send(_CONTINUE)

    def request_data(self, data: bytes) -> None:
        """Read on in the request's body."""
        body = self._body
        try:
            pieces = body.feed(data) if data or not body.done else []
        except MalformedMessageError:
            self._malformed()
            return
        for piece in pieces:
            self._piece(piece)
        if body.done and not self.is_read:
            self.is_read = True
            self._request_read()

    def _malformed(self) -> None:
        """End the call and the connection: the client's bytes are not a valid body."""
        client = self._client
        if self._live is not None:
            self.drop_upstream()
            self.end(ExchangeOutcome.CLIENT_ABORT)
        if not self._has_answer and not self._replied:
            client.send(messages.write_reply(answer(Reason.BAD_REQUEST, Shape.OPENAI), close=True))
        client.call = None
        client.close()

    def _piece(self, piece: bytes) -> None:
        upstream = self._upstream
        if self._replied:
            self._drained += len(piece)
            if self._drained > _DRAINED_BYTES:
                self._client.abort()
            return
        self._size += len(piece)
        if self._body.chunked and self._size > self._ground.services.body_bytes:
            self._too_long()
            return
        if self._unsent is not None:
            self._unsent.append(piece)
            waits = self._live is not None and not self._live.reads_whole
            if waits and self._size > _UNSENT_BYTES:
                self._client.pause(paused=True)
            return
        if self._capture is not None:
            self._capture.on_request(piece)
        if upstream is not None:
            upstream.transport.write(messages.chunk(piece) if self._body.chunked else piece)

    def _too_long(self) -> None:
        """Refuse a request whose chunks are more than a body may be; its upstream hears no end."""
        live = self._live
        assert live is not None  # noqa: S101 - the gateway's own API takes no chunks
        self.drop_upstream()
        self.end(ExchangeOutcome.CLIENT_ABORT)
        if not self._has_answer:
            self._refuse(live.too_long())
        else:
            self._replied = True  # the rest is thrown away
            self.cut()

    def _request_read(self) -> None:
        live = self._live
        if self._replied:
            self.finish()
        elif live is None:
            body = b"".join(self._unsent or ())
            self._ground.run(self._ask_endpoint(body))
        elif live.reads_whole and self._upstream is None:
            body = b"".join(self._unsent or ())
            if live.is_guarded:
                self._ground.run(self._judge(live, body))
            elif live.is_inline:
                self._ground.run(self._pseudonymise(live, body))
            else:
                self._send_whole(live, body)
        elif self._unsent is None:
            live.request_read()
            if self._body.chunked and self._upstream is not None:
                trailers = live.trailers(self._body.trailers)
                self._upstream.transport.write(messages.last_chunk(trailers))
            self.release_upstream()

    async def _pseudonymise(self, live: InFlight, body: bytes) -> None:
        """Put surrogates into the body; nothing is sent before."""
        told = await live.pseudonymised(body)
        if self._live is not live:
            return  # its client has left
        self._capture = live.capture
        if isinstance(told, LocalReply):
            self.end(ExchangeOutcome.REFUSED)
            self._reply(told)
            self.finish()
        else:
            self._send_whole(live, told)

    async def _judge(self, live: InFlight, body: bytes) -> None:
        """Judge the tool calls of a request; nothing is sent before."""
        send = self._send_event if self._head.version == "1.1" else None
        told = await live.guarded(body, send=send, gone=lambda: self._live is not live)
        if self._live is not live:
            return  # its client has left
        if told is None:
            self._send_whole(live, body)
            return
        judged = live.status != 0
        self.end(ExchangeOutcome.COMPLETE if judged else ExchangeOutcome.REFUSED)
        self._reply(told)
        self.finish()

    def _send_event(self, data: bytes) -> None:
        """Send events to a client that waits; the first ones with the head of its answer."""
        head = b""
        if not self._streams:
            self._streams = True
            head = messages.write_response(200, b"OK", STREAM_FIELDS, messages.CHUNKED)
        self._client.send(head + messages.chunk(data))

    def _send_whole(self, live: InFlight, body: bytes) -> None:
        self._unsent = [live.request_whole(body)]
        self._capture = live.capture
        self._connect()

    async def _ask_endpoint(self, body: bytes) -> None:
        head, caller = self._head, self._caller
        assert caller is not None  # noqa: S101 - for the type checker
        ground = self._ground
        try:
            reply = await ground.endpoints.answer(caller, head.target, head.fields, body)
        except Exception as error:  # noqa: BLE001 - counted; the client is told
            ground.services.fault("endpoint", error)
            reply = answer(Reason.FAULT, Shape.OPENAI)
        if self._client.call is self:
            self._reply(reply)
            self.finish()

    # The upstream.

    def _connect(self) -> None:
        live, ground = self._live, self._ground
        assert live is not None  # noqa: S101 - for the type checker
        upstream = ground.pool.take(live.admitted.origin)
        if upstream is None:
            ground.run(self._open(live))
        else:
            self._connected(upstream)

    async def _open(self, live: InFlight) -> None:
        pool = self._ground.pool
        while True:
            try:
                upstream = await pool.connect(live.admitted.origin)
            except OSError:
                if self._client.call is not self:
                    return
                if live.another():
                    self._capture = live.capture
                    continue
                self.unreachable()
                return
            if self._client.call is self:
                self._connected(upstream)
            else:
                pool.keep(upstream)
            return

    def _connected(self, upstream: UpstreamConnection) -> None:
        """Send the request's head, and what has come of its body."""
        live, body = self._live, self._body
        assert live is not None  # noqa: S101 - for the type checker
        self._upstream = upstream
        self._relay = upstream.caller = ResponseRelay(
            self, self._ground, self._client, live, self._head
        )
        parts, self._unsent = self._unsent or [], None
        length = messages.CHUNKED if body.chunked else self._head.length
        fields = live.fields
        if live.reads_whole:
            length = len(parts[0])
            if self._head.expects:
                fields = tuple([each for each in fields if each[0].lower() != b"expect"])
            live.connected()
        else:
            if self._capture is not None:
                for piece in parts:
                    self._capture.on_request(piece)
            live.connected()
            if self.is_read:
                live.request_read()
        known, standing = self._known, live.admitted.standing
        repeats = fields is live.admitted.rewritten.sent
        if (self._head.length is None) is not (length is None):
            repeats = False  # only the length of a body may be another
        if known is not None and standing is not None and repeats:
            out = [known.write(live, standing, length)]
        else:
            out = [messages.write_request(live.method, live.path, fields, length)]
        if body.chunked and not live.reads_whole:
            out += map(messages.chunk, parts)
            if self.is_read:
                out.append(messages.last_chunk(live.trailers(body.trailers)))
        else:
            out += parts
        if self._client.is_full:  # of the answer before
            self.client_full(full=True)
        self._client.pause(paused=False)
        upstream.transport.write(b"".join(out))

    def drop_upstream(self) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.close()

    def unreachable(self) -> None:
        """Answer for an upstream that did not."""
        live = self._live
        assert live is not None  # noqa: S101 - for the type checker
        self.drop_upstream()
        self.end(ExchangeOutcome.UPSTREAM_ABORT)
        self._reply(answer(Reason.UNREACHABLE, live.admitted.shape))
        if self.is_read:
            self.finish()

    def client_full(self, *, full: bool) -> None:
        """The client takes no more of the response now, or does again."""
        upstream = self._upstream
        if upstream is not None and not upstream.transport.is_closing():
            (upstream.transport.pause_reading if full else upstream.transport.resume_reading)()

    def client_lost(self) -> None:
        """The client is gone: so is its call."""
        self.drop_upstream()
        if self._live is not None:
            self.end(ExchangeOutcome.CLIENT_ABORT)

    def end(self, outcome: ExchangeOutcome) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.end(outcome)

    # What the relay says of the response.

    @property
    def is_over(self) -> bool:
        """Whether the client's connection has gone on, or is gone."""
        return self._client.call is not self

    def cut(self) -> None:
        """Break the response off for the client as it broke off for us."""
        self.drop_upstream()
        self.end(ExchangeOutcome.UPSTREAM_ABORT)
        # Where the answer ends with the connection, a proper end would make it a whole one.
        broken = self._relay is not None and self._relay.ends_by_close
        self._client.call = self._relay = None
        (self._client.reset if broken else self._client.close)()

    @property
    def _has_answer(self) -> bool:
        return self._relay is not None and self._relay.response is not None

    def release_upstream(self) -> None:
        """Give the upstream's connection back once both sides are complete."""
        upstream, relay = self._upstream, self._relay
        if upstream is None or relay is None or not relay.is_whole or not self.is_read:
            return
        self._upstream = None
        upstream.release()

    # The gateway's own answers, and the end.

    def _reply(self, reply: LocalReply) -> None:
        """Answer the request ourselves; what comes of its body is thrown away."""
        self._replied = True
        self._unsent = None
        if self._streams:
            self._client.send(messages.chunk(as_events(reply)) + messages.last_chunk(()))
            return
        self._client.pause(paused=False)  # who sends all of it first hears the answer then
        endless = self._body.chunked or self._head.expects
        too_long = (self._head.length or 0) > _DRAINED_BYTES
        close = not self._body.done and (endless or too_long)
        if close:
            self._keeps_alive = False
        self._client.send(
            messages.write_reply(reply, close=close, body=self._head.method != b"HEAD")
        )

    def finish(self) -> None:
        """Go on to the next request, once this one has been read and answered."""
        client, relay = self._client, self._relay
        if client.call is not self:
            return
        if not self.is_read:
            # Answered early: the rest is read and thrown away, and its upstream is left.
            self.drop_upstream()
            self._replied = True
            client.pause(paused=False)
            return
        self.release_upstream()
        self.drop_upstream()
        keep = self._keeps_alive and (relay is None or not relay.ends_by_close)
        self._relay = None  # it knows its call: without this both were left to the collector
        if self._body.chunked and self._body.excess:
            keep = False
            excess = b""
        else:
            excess = self._body.excess
        client.end_call(excess, keep=keep)
