"""The tool calls of one request: judged before anything of it is sent, and held where a person decides."""

from collections.abc import Callable
from typing import NamedTuple

from proxy.admission import AdmittedRequest
from proxy.clients.credentials import RawFields
from proxy.guard.answers import (
    answer_taken,
    comment,
    denial,
    message_event,
    progress,
    takes_events,
)
from proxy.guard.calls import ReadRequest, UnreadableCallError
from proxy.guard.elicitation import SESSION_HEADER, ClientUser, McpSession
from proxy.guard.route import CallGuard, Waiting
from proxy.guard.rules import Ruling
from proxy.heads import value_of
from proxy.recording.capture import Capture
from proxy.responses import LocalReply, Reason, answer
from proxy.services import Services
from trajectory.canonical import JsonObject

_WAITS = "Headrace: this call waits for a person."


class GuardedReply(NamedTuple):
    """What a client hears in place of its upstream's answer."""

    reply: LocalReply
    is_answer: bool
    """It answers the calls, as their server would; else the request is refused."""


class GuardedRequest:
    """A request with tool calls, or one that may hold some; slots, because there is one for each."""

    __slots__ = ("_admitted", "_can_elicit", "_guard", "_method", "_services", "waited")

    def __init__(
        self, services: Services, guard: CallGuard, admitted: AdmittedRequest, method: bytes
    ) -> None:
        self._services = services
        self._guard = guard
        self._admitted = admitted
        self._method = method
        self._can_elicit = False
        """It begins a session whose client can ask its user."""
        self.waited: ReadRequest | None = None
        """What it said, where its answer has begun as a stream of events because it waits for a person."""

    def says_nothing(self, fields: RawFields) -> bool:
        """Tell by its head whether it has no body, and calls nothing either.

        Raises:
            RequestRefusal: it cannot be read, and must not go on.
        """
        empty = (value_of(fields, b"content-length") or b"0").strip() == b"0"
        if not empty or value_of(fields, b"transfer-encoding") is not None:
            return False
        try:
            read = self._read(fields, b"")
        except UnreadableCallError:
            raise self._admitted.refusal(Reason.UNREADABLE_CALL) from None
        return read is None or not read.calls

    async def judged(
        self,
        body: bytes,
        fields: RawFields,
        capture: Capture | None,
        *,
        send: Callable[[bytes], None] | None,
        gone: Callable[[], bool],
    ) -> GuardedReply | None:
        """Judge the calls of the request; None where it goes on to its upstream.

        Args:
            body: all of it.
            fields: its headers.
            capture: what records it.
            send: sends events to a client that waits; its answer has begun then. None where none may.
            gone: tells whether the client has left.
        """
        reason, shape = Reason.FAULT, self._admitted.shape
        try:
            read = self._read(fields, body)
            return None if read is None else await self._judge(read, capture, send, gone)
        except UnreadableCallError:
            reason = Reason.UNREADABLE_CALL
        except Exception as error:  # noqa: BLE001 - whatever it is, the calls must not pass
            self._services.fault("guard", error)
        self._services.counters.refusals[reason] += 1
        return GuardedReply(answer(reason, shape), is_answer=False)

    async def _judge(
        self,
        read: ReadRequest,
        capture: Capture | None,
        send: Callable[[bytes], None] | None,
        gone: Callable[[], bool],
    ) -> GuardedReply | None:
        guard, admitted, route = self._guard, self._admitted, self._admitted.plan.name
        key_id = admitted.client.key_id
        session = self._session(admitted.asked)
        if read.answered is not None:
            is_known = await guard.take_answer(read.answered, session)
            return GuardedReply(answer_taken(is_known=is_known), is_answer=True)
        self._can_elicit = read.can_elicit
        decisions = guard.judge(route, read, key_id)
        if any(one.ruling is Ruling.HOLD for one in decisions):
            says = send if read.is_rpc and takes_events(admitted.asked) else None

            def tell(count: int) -> None:
                if says is not None:
                    self._wait_in_stream(read, count, says)

            def put(question: JsonObject) -> None:
                if says is not None:
                    says(message_event(question))

            def is_over() -> bool:
                return gone() or not self._services.admission.is_known(admitted)

            decisions = await guard.ask(
                route,
                read,
                decisions,
                key_id=key_id,
                step_id="" if capture is None else capture.exchange.hex(),
                waiting=Waiting(tell, is_over, ClientUser(session, put) if says else None),
            )
            if gone():  # nobody hears it
                return GuardedReply(answer(Reason.FAULT, admitted.shape), is_answer=False)
            if is_over():
                self._services.counters.refusals[Reason.NO_KEY] += 1
                return GuardedReply(answer(Reason.NO_KEY, admitted.shape), is_answer=False)
        self._services.tell(guard, admitted, decisions, capture)
        texts = {one.number: one.text for one in decisions if not one.goes_on}
        if not texts:
            return None
        return GuardedReply(denial(read, texts, admitted.shape), is_answer=True)

    def _wait_in_stream(self, read: ReadRequest, count: int, send: Callable[[bytes], None]) -> None:
        """Tell a client that its call waits, as often as it must be told."""
        self.waited = read
        tokens = {one.progress: None for one in read.calls if one.progress is not None}
        send(comment(_WAITS) + b"".join(progress(token, count, _WAITS) for token in tokens))

    def answered(self, status: int, fields: RawFields) -> None:
        """Note the upstream's answer: it names the session whose client can ask its user."""
        if not self._can_elicit or status != 200:
            return
        try:
            self._guard.remember(self._session(fields))
        except Exception as error:  # noqa: BLE001 - the call goes on, and operators decide
            self._services.fault("guard", error)

    def _read(self, fields: RawFields, body: bytes) -> ReadRequest | None:
        admitted = self._admitted
        return self._guard.read(
            admitted.plan.name, self._method, admitted.path, fields, body, admitted.client
        )

    def _session(self, fields: RawFields) -> McpSession:
        client, name = self._admitted.client, value_of(fields, SESSION_HEADER) or b""
        said = name.decode("latin-1").strip()
        return McpSession(client.tenant_id, client.key_id, self._admitted.plan.name, said)
