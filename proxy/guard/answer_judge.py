"""Judges the tool calls of one model answer before its client sees them.

Text passes as it comes. From the first call on the answer is held back until it is whole, its calls are
judged, and people have answered. Where all of them may be made the bytes go on as they came; where not,
a text stands in the call's place.
"""

import time
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from proxy.clients.credentials import RawFields
from proxy.guard.answer_calls import (
    AnswerForm,
    Event,
    FoundCall,
    UnreadableAnswerError,
    may_hold_calls,
    stray,
)
from proxy.guard.block_answers import ConverseAnswers, MessagesAnswers
from proxy.guard.carriers import CARRIERS, LONGEST, AnswerCarrier, CarriedUnit, dumped
from proxy.guard.chat_answers import ChatAnswers, GeminiAnswers, OllamaAnswers
from proxy.guard.response_answers import ResponsesAnswers
from proxy.guard.route import KEEP_ALIVE_SECONDS, CallDecision, CallGuard, Waiting
from proxy.guard.rules import UNREADABLE, RequestedCall, Ruling, is_sound_name
from proxy.guard.strict_json import AmbiguousJsonError, parse_strictly
from proxy.heads import value_of
from proxy.responses import LocalReply, Reason, answer
from trajectory.dialects.errors import Shape, error_body
from trajectory.exchange import ClientIdentity

_FORMS: tuple[type[AnswerForm], ...] = (
    *(ChatAnswers, GeminiAnswers, ResponsesAnswers),
    *(MessagesAnswers, ConverseAnswers, OllamaAnswers),
)
_HARMLESS = (b"text/plain", b"text/vtt", b"audio/", b"image/", b"video/", b"application/x-subrip")
"""Kinds of bodies in which no client looks for calls."""
_WAITS = "Headrace: a tool call waits for a person."
_PROBLEM = (
    "Headrace: tool calls of this route are judged, and this answer cannot be read for certain."
)


class JudgedRest(NamedTuple):
    """What is left of an answer, and what became of its calls."""

    body: bytes
    decisions: Sequence[CallDecision] = ()
    refusal: LocalReply | None = None
    """What the client hears instead, where nothing has been said yet."""


class AnswerJudge:
    """Judges one answer."""

    def __init__(
        self,
        guard: CallGuard,
        route: str,
        client: ClientIdentity,
        *,
        shape: Shape,
        fields: RawFields,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with the answer's headers.

        Args:
            guard: of the worker.
            route: that the call took.
            client: whose it is.
            shape: of errors.
            fields: the answer's headers.
            clock: seconds that only grow.
        """
        self._guard = guard
        self._route = route
        self._client = client
        self._shape = shape
        self._clock = clock
        self._passes = guard.passes_answers(route)
        kind = (value_of(fields, b"content-type") or b"").partition(b";")[0].strip().lower()
        encoding = (value_of(fields, b"content-encoding") or b"").strip().lower()
        self._is_encoded = encoding not in (b"", b"identity")
        self._is_json = kind.endswith((b"/json", b"+json"))
        self._is_harmless = kind.startswith(_HARMLESS)
        carrier = CARRIERS.get(kind)
        self._carrier: AnswerCarrier | None = (
            carrier() if carrier and not self._is_encoded else None
        )
        self._form: AnswerForm | None = None
        self._held: list[CarriedUnit] = []
        self._size = 0
        self._sent = clock()
        self._broken = False

    @property
    def streams(self) -> bool:
        """Whether it is passed on as it comes, up to its first call."""
        return self._carrier is not None

    @property
    def holds(self) -> bool:
        """Whether it must be whole before anything of it may pass."""
        return not self.streams and not (self._is_harmless and not self._is_encoded)

    # Streams.

    def feed(self, data: bytes) -> bytes:
        """Return what of a piece of the stream goes to the client now."""
        assert self._carrier is not None  # noqa: S101 - of streams alone
        return self._take(self._carrier.feed(data))

    def _take(self, units: Sequence[CarriedUnit]) -> bytes:
        out: list[bytes] = []
        for unit in units:
            if self._broken:
                break
            problem, begins = unit.problem, bool(self._held)
            if not problem and not begins:
                try:
                    # All of them are looked at, those behind a call too.
                    begins = sum(map(self._begins, unit.values)) > 0
                except (UnreadableAnswerError, RecursionError) as error:
                    problem = str(error) or "too deep"
            self._size += len(unit.raw) if begins else 0
            if problem or self._size > LONGEST:
                self._guard.unreadable(self._route)
                if not self._passes:
                    self._broken = True
                    self._held.clear()
                    break
            if begins:
                self._held.append(unit)
                continue
            for value in unit.values:
                if self._form is not None and self._form.takes(value):
                    self._form.note(value)
            out.append(unit.raw)
        if self._held and self._clock() - self._sent > KEEP_ALIVE_SECONDS:
            out.append(self._keep_alive())
        if out:
            self._sent = self._clock()
        return b"".join(out)

    def _begins(self, value: Event) -> bool:
        """Tell whether the client's calls begin in a value."""
        if self._form is None:
            self._form = _form_of(value)
        return _checked(self._form, value) and self._form is not None and self._form.begins(value)

    def _keep_alive(self) -> bytes:
        carrier, form = self._carrier, self._form
        assert carrier is not None  # noqa: S101 - of streams alone
        value = None if form is None else form.keep_alive()
        if form is None or value is None:
            return carrier.comment(_WAITS)
        return carrier.write(value, named=form.named)

    async def rest(
        self,
        *,
        step_id: str,
        send: Callable[[bytes], None] | None,
        gone: Callable[[], bool],
    ) -> JudgedRest:
        """Return what is left of a stream, once all of it is there and its calls are decided.

        Args:
            step_id: the step whose answer it is.
            send: sends to a client that waits; None where nothing can be said.
            gone: tells whether the client has left.
        """
        carrier = self._carrier
        assert carrier is not None  # noqa: S101 - of streams alone
        told = self._take(carrier.left())
        form, units = self._form, self._held
        if self._broken or form is None or not units:
            return JudgedRest(told + (self._error(carrier) if self._broken else b""))

        def tell(_: int) -> None:
            if send is not None and (alive := self._keep_alive()):
                send(alive)

        values = [value for unit in units for value in unit.values]
        try:
            for value in values:
                _checked(form, value)
            said, decisions = await self._decided(form, values, step_id, Waiting(tell, gone))
        except (UnreadableAnswerError, RecursionError):
            self._guard.unreadable(self._route)
            if not self._passes:
                return JudgedRest(told + self._error(carrier))
            return JudgedRest(told + b"".join(unit.raw for unit in units))
        if said is values:
            return JudgedRest(told + b"".join(unit.raw for unit in units), decisions)
        ends = [unit.raw for unit in units if not unit.values]  # comments, and ``[DONE]``
        written = [carrier.write(value, named=form.named) for value in said]
        return JudgedRest(told + b"".join([*written, *ends]), decisions)

    def _error(self, carrier: AnswerCarrier) -> bytes:
        body = error_body(self._shape, 502, "unreadable_answer", _PROBLEM)
        if isinstance(self._form, ResponsesAnswers):
            code = "unreadable_answer"
            body = {"type": "error", "code": code, "message": _PROBLEM, "param": None}
        return carrier.error(body, name="error" if self._form and self._form.named else "")

    # Whole bodies.

    async def whole(self, body: bytes, *, step_id: str, gone: Callable[[], bool]) -> JudgedRest:
        """Return a whole body as its client may see it, once its calls are decided."""
        try:
            return await self._whole(body, step_id, gone)
        except (AmbiguousJsonError, UnreadableAnswerError, RecursionError):
            self._guard.unreadable(self._route)
            if self._passes:
                return JudgedRest(body)
            return JudgedRest(b"", refusal=answer(Reason.UNREADABLE_ANSWER, self._shape))

    async def _whole(self, body: bytes, step_id: str, gone: Callable[[], bool]) -> JudgedRest:
        if not body:
            return JudgedRest(body)
        if self._is_encoded or not self._is_json or len(body) > LONGEST:
            raise UnreadableAnswerError("a body that cannot be read")
        if not may_hold_calls(body):
            return JudgedRest(body)
        value = parse_strictly(body)
        values = value if isinstance(value, list) else [value]
        listed = [one for one in values if isinstance(one, dict)]
        form = _form_of(listed[0]) if listed else None
        if form is None or len(listed) < len(values):
            if stray(value):
                raise UnreadableAnswerError("a call at an unknown place")
            return JudgedRest(body)
        for one in listed:
            _checked(form, one)
        waiting = Waiting(lambda _: None, gone)
        said, decisions = await self._decided(form, listed, step_id, waiting)
        if said is listed:
            return JudgedRest(body, decisions)
        return JudgedRest(dumped(said if isinstance(value, list) else said[0]), decisions)

    # Decisions.

    async def _decided(
        self, form: AnswerForm, values: list[Event], step_id: str, waiting: Waiting
    ) -> tuple[list[Event], Sequence[CallDecision]]:
        """Return values as the client gets them; the same list where all calls may be made."""
        found = form.calls(values)
        keys: list[Hashable] = []
        calls: list[RequestedCall] = []
        texts: dict[Hashable, str] = {}
        decisions: list[CallDecision] = []
        for key, one in found.items():
            call = self._requested(one)
            if call is not None:
                keys.append(key)
                calls.append(call)
                continue
            self._guard.unreadable(self._route)
            if not self._passes:
                denied = CallDecision(len(found) + len(texts), Ruling.DENY, UNREADABLE)
                decisions.append(denied)
                texts[key] = _instead(one, denied)
        judged = await self._guard.decide_answer(
            self._route, calls, key_id=self._client.key_id, step_id=step_id, waiting=waiting
        )
        for each in judged:
            if not each.goes_on:
                texts[keys[each.number]] = _instead(found[keys[each.number]], each)
        if not texts:
            return values, [*judged, *decisions]
        response_id, waiting_calls = form.unanswered(values, texts)
        if response_id and waiting_calls:
            await self._guard.keep_denied(self._client, response_id, waiting_calls)
        return form.without(values, texts), [*judged, *decisions]

    def _requested(self, found: FoundCall) -> RequestedCall | None:
        """Return a call as rules look at it; None where it cannot be read for certain."""
        if found.tool is None or not is_sound_name(found.tool):
            return None
        try:
            arguments = found.read()
        except (AmbiguousJsonError, RecursionError):
            return None
        client = self._client
        return RequestedCall(
            found.tool,
            arguments,
            tenant=client.tenant_id,
            app=client.app_id,
            environment=client.environment,
        )


def _form_of(value: Event) -> AnswerForm | None:
    return next((form() for form in _FORMS if form.takes(value)), None)


def _checked(form: AnswerForm | None, value: Event) -> bool:
    """Tell whether a form reads a value.

    Raises:
        UnreadableAnswerError: a call is in it where nobody looks for one.
    """
    takes = form is not None and form.takes(value)
    if stray(value, [*form.known(value)] if takes and form is not None else ()):
        raise UnreadableAnswerError("a call at an unknown place")
    return takes


def _instead(found: FoundCall, decision: CallDecision) -> str:
    """Return the text that stands in a call's place."""
    name = found.tool if found.tool is not None and is_sound_name(found.tool) else "a tool"
    return f"[Call of {name}] {decision.text}"
