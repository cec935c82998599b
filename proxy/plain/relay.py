"""The way of a response back: read from its upstream, captured, changed, and framed for its client."""

from collections.abc import Coroutine
from typing import Any, Protocol

from proxy.exchange import InFlight
from proxy.exchange_response import ResponseInFlight
from proxy.plain import messages
from proxy.plain.messages import BrokenBodyError, MalformedMessageError, RequestHead, ResponseHead
from proxy.responses import LocalReply
from trajectory.exchange import ExchangeOutcome

_COMPLETE = ExchangeOutcome.COMPLETE


class RelayGround(Protocol):
    """What the listener lends to a relay."""

    def now(self) -> float:
        """Return the event loop's time."""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine beside the connections."""


class Receiver(Protocol):
    """The client's connection."""

    since: float

    def send(self, data: bytes) -> None:
        """Send bytes to the client."""

    def pause(self, *, paused: bool) -> None:
        """Read no more from the client for now, or again."""


class RelayedCall(Protocol):
    """The call that a response belongs to."""

    @property
    def is_over(self) -> bool:
        """Whether the client's connection has gone on, or is gone."""

    def drop_upstream(self) -> None:
        """Close the upstream's connection."""

    def release_upstream(self) -> None:
        """Give the upstream's connection back once both sides are complete."""

    def unreachable(self) -> None:
        """Answer for an upstream that did not."""

    def cut(self) -> None:
        """Break the response off for the client."""

    def end(self, outcome: ExchangeOutcome) -> None:
        """End the exchange."""

    def finish(self) -> None:
        """Go on to the next request."""


class ResponseRelay:
    """One response on its way; it is the caller of its upstream's connection."""

    __slots__ = (
        "_buffer",
        "_call",
        "_chunks",
        "_client",
        "_ground",
        "_in_flight",
        "_live",
        "_request",
        "_tail",
        "response",
    )

    def __init__(
        self,
        call: RelayedCall,
        ground: RelayGround,
        client: Receiver,
        live: InFlight,
        request: RequestHead,
    ) -> None:
        self._call = call
        self._ground = ground
        self._client = client
        self._live = live
        self._request = request
        self.response: ResponseHead | None = None
        """Its head, once that is there."""
        self._in_flight: ResponseInFlight | None = None
        """It as the exchange has it."""
        self._buffer = b""
        self._tail: list[bytes] = []
        """Of the response, while it is held back."""
        self._chunks = False
        """It goes to the client in chunks."""

    @property
    def is_whole(self) -> bool:
        """Whether the response has come to its end."""
        return self.response is not None and self.response.body.done

    @property
    def ends_by_close(self) -> bool:
        """Whether the client hears of its end by that of the connection."""
        if self.response is None:
            return False
        body = self.response.body
        return body.ends_by_close or (self._has_no_length and not self._chunks)

    @property
    def _has_no_length(self) -> bool:
        """Whether nobody knows its length before its end, as its client gets it."""
        in_flight, response = self._in_flight, self.response
        changes = in_flight is not None and in_flight.changes_length
        return changes or (response is not None and response.body.chunked)

    # From the upstream's connection.

    def upstream_full(self, *, full: bool) -> None:
        """The upstream takes no more of the request now, or does again."""
        self._client.pause(paused=full)

    def upstream_lost(self, *, broken: bool) -> None:
        """The upstream is gone; that is the end of a body without a length, and no other's."""
        self._call.drop_upstream()
        response = self.response
        if response is None:
            self._call.unreachable()
        elif response.body.done:
            return
        elif response.body.ends_by_close and not broken:
            self._pass([], last=True)
        else:
            self._call.cut()

    def response_data(self, data: bytes) -> None:
        """Take bytes of the response."""
        self._client.since = self._ground.now()
        if self.response is None:
            self._buffer = data = self._buffer + data if self._buffer else data
            try:
                found = self._read_head(data)
            except MalformedMessageError:
                self._call.unreachable()
                return
            if found is None:
                return
            data = found
        response = self.response
        assert response is not None  # noqa: S101 - for the type checker
        if response.body.done:
            if data:  # nobody asked for it
                self._call.drop_upstream()
            return
        try:
            pieces = response.body.feed(data)
        except BrokenBodyError as error:
            if error.pieces or self._tail:
                self._pass(error.pieces, last=False)
            self._call.cut()
            return
        if pieces or response.body.done:
            self._pass(pieces, last=response.body.done)
        elif self._in_flight is None or not self._in_flight.holds:
            self._send_tail()

    # Its head.

    def _read_head(self, data: bytes) -> bytes | None:
        """Read the response's head behind any informational ones; return what follows it."""
        while True:
            end = messages.end_of_head(data)
            if end < 0:
                self._buffer = data
                return None
            response = ResponseHead(data[:end], self._request.method)
            data = data[end:]
            if response.status >= 200:
                break
            if response.status == 101:
                raise MalformedMessageError("nobody asked for another protocol")
            if self._request.version == "1.1" and not self._live.has_begun_to_answer:
                self._client.send(
                    messages.write_response(response.status, response.reason, response.fields, None)
                )
        self._buffer = b""
        self.response = response
        self._in_flight = in_flight = self._live.begin_response(response.status, response.fields)
        response.fields = in_flight.fields
        begun = self._live.has_begun_to_answer
        self._chunks = begun or (self._has_no_length and self._request.version == "1.1")
        if not (in_flight.holds or begun):
            self._tail.append(self._head_of(response))
        if response.body.done:
            self._pass([], last=True, excess=data)
            return None
        return data

    def _head_of(self, response: ResponseHead, length: int | None = None) -> bytes:
        if length is None:
            if self._chunks:
                length = messages.CHUNKED
            elif not self._has_no_length:
                # Of a response without a body the length is what the upstream says of it.
                length = response.length
        return messages.write_response(response.status, response.reason, response.fields, length)

    # Its body.

    def _pass(self, pieces: list[bytes], *, last: bool, excess: bytes = b"") -> None:
        """Pass pieces of the response on; the last ones with its end."""
        in_flight, response, out = self._in_flight, self.response, self._tail
        assert in_flight is not None  # noqa: S101 - for the type checker
        assert response is not None  # noqa: S101 - for the type checker
        if in_flight.holds:
            out += pieces
            if not last:
                return
            body = in_flight.whole(b"".join(out))
            if in_flight.is_judged:
                self._tail = []
                self._judge(body, excess=excess)
                return
            length = len(body) if pieces or body else None
            response.fields = (*response.fields, *in_flight.told())
            self._tail = out = [self._head_of(response, length), body]
        elif pieces and in_flight.ended():
            self._call.cut()
            return
        else:
            tee = in_flight.tee
            for piece in pieces:
                told = piece if tee is None else tee(piece)
                if told is piece and not self._chunks:
                    out.append(piece)
                else:
                    self._add(out, told)
            if last:
                if tee is not None and (rest := tee(b"")):
                    self._add(out, rest)
                if in_flight.is_judged:
                    self._judge(None, excess=excess)
                    return
                if self._chunks:
                    out.append(messages.last_chunk((*response.body.trailers, *in_flight.told())))
        if not last:
            self._send_tail()
            return
        self._done(excess)

    def _judge(self, body: bytes | None, *, excess: bytes) -> None:
        """Let the upstream go, and hold the rest until its tool calls are judged."""
        response, call = self.response, self._call
        assert response is not None  # noqa: S101 - for the type checker
        if excess or response.body.excess or not response.keeps_alive:
            call.drop_upstream()
        call.release_upstream()
        self._send_tail()
        self._ground.run(self._end_judged(body))

    async def _end_judged(self, body: bytes | None) -> None:
        in_flight, response = self._in_flight, self.response
        assert in_flight is not None  # noqa: S101 - for the type checker
        assert response is not None  # noqa: S101 - for the type checker
        told = await in_flight.judged(
            body, send=None if body is not None else self._send_now, gone=lambda: self._call.is_over
        )
        if self._call.is_over:
            return
        if isinstance(told, LocalReply):
            if body is None:  # its answer has begun
                self._call.cut()
                return
            self._tail = [messages.write_reply(told, close=False)]
        elif body is None:
            if told:
                self._add(self._tail, told)
            if self._chunks:
                self._tail.append(messages.last_chunk((*response.body.trailers, *in_flight.told())))
        else:
            response.fields = (*response.fields, *in_flight.told())
            length = len(told) if body or told else None
            self._tail = [self._head_of(response, length), told]
        self._done()

    def _send_now(self, data: bytes) -> None:
        """Send to a client that waits behind what it has."""
        self._client.since = self._ground.now()
        self._client.send(messages.chunk(data) if self._chunks else data)

    def _done(self, excess: bytes = b"") -> None:
        """End the exchange, and the response once its record is on the disk."""
        in_flight, response, call = self._in_flight, self.response, self._call
        assert in_flight is not None  # noqa: S101 - for the type checker
        assert response is not None  # noqa: S101 - for the type checker
        if excess or response.body.excess or not response.keeps_alive:
            call.drop_upstream()
        call.release_upstream()
        call.end(_COMPLETE)
        if in_flight.waits_for_disk:
            self._ground.run(self._end_later())
        else:
            self._send_tail()
            call.finish()

    def _add(self, out: list[bytes], told: bytes | list[bytes]) -> None:
        pieces = told if isinstance(told, list) else [told]
        out += [messages.chunk(each) if self._chunks else each for each in pieces if each]

    def _send_tail(self) -> None:
        parts, self._tail = self._tail, []
        if parts:
            self._client.send(parts[0] if len(parts) == 1 else b"".join(parts))

    async def _end_later(self) -> None:
        """Hold the end of the response until its record is on the disk."""
        assert self._in_flight is not None  # noqa: S101 - for the type checker
        reply = await self._in_flight.durable()
        if self._call.is_over:
            return
        if reply is not None:
            self._tail = [messages.write_reply(reply, close=False)]
        self._send_tail()
        self._call.finish()
