"""Redaction of whole trajectories: every string of a call goes through the redactor, once."""

import json
import marshal
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from governance.identifiers import Namer
from governance.policy.capture import CaptureField
from governance.redact.report import (
    NamePart,
    RedactedMessage,
    RedactedText,
    RedactionError,
    RedactionReport,
    RedactionScope,
)
from governance.redact.segments import BESIDE_MESSAGES
from governance.vocabulary import looks_like_an_id
from trajectory.call import Call
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.resends import same_message
from trajectory.message import Message, OpaquePart, ReasoningPart, stored_message


class CallRedactor(Protocol):
    """What governance asks of redaction; raises when it cannot vouch for its output."""

    def redact_messages(
        self, messages: Sequence[Message], *, scope: RedactionScope
    ) -> list[RedactedMessage]:
        """Redact messages of one trajectory; a name found in one of them goes from all."""
        ...

    def redact_stored(
        self, said: Sequence[Message], stored: Sequence[Message], *, scope: RedactionScope
    ) -> list[RedactedMessage]:
        """Redact stored messages again, by what was said in their trajectory since."""
        ...

    def redact_text(self, text: str, *, scope: RedactionScope, path: str = "") -> RedactedText:
        """Redact one text."""
        ...


class CleanMessage(NamedTuple):
    """A redacted message with its name."""

    message_id: str
    message: Message
    parts: str
    """Canonical JSON of its parts."""
    report: RedactionReport
    subjects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CleanFields:
    """What a call holds beside its messages, redacted."""

    tools: JsonValue
    sampling: JsonValue
    ext: JsonValue
    arguments: JsonValue
    result: JsonValue
    tool_name: str
    tool_server: str
    error: str | None
    model_requested: str | None
    model_served: str | None
    agent: str | None
    acts_as: str | None
    response_id: str | None
    report: RedactionReport
    subjects: tuple[str, ...]
    derived: dict[object, Any] = field(repr=False, compare=False)
    """What was worked out from these fields, kept with them; equal fields share it."""


@dataclass(frozen=True, slots=True)
class CleanCall:
    """A call whose every string is redacted."""

    context: tuple[CleanMessage, ...]
    output: CleanMessage | None
    fields: CleanFields

    @property
    def findings(self) -> bool:
        """Whether redaction found anything in it, or anybody."""
        said = (*self.context, *([self.output] if self.output else ()), self.fields)
        return any(one.report.counts or one.subjects for one in said)


class TrajectoryRedaction:
    """Redacts the calls of one trajectory in one batch.

    All messages, and all fields beside them, are redacted together, so that what one of them
    gives away is gone from all of them; a message that is resent is redacted once.
    """

    def __init__(
        self,
        redactor: CallRedactor,
        namer: Namer,
        scope: RedactionScope,
        name_parts: Sequence[NamePart] = (),
    ) -> None:
        """Work on one trajectory; ``name_parts`` were found in it before."""
        self._redactor = redactor
        self._namer = namer
        self._scope = replace(scope, name_parts=tuple(name_parts))
        self._keys: dict[str, list[bytes]] = {}
        """Exchange → the keys of what its call says, its fields last."""
        self._asked: dict[bytes, Message] = {}
        self._clean: dict[bytes, RedactedMessage] = {}
        self._named_already: dict[tuple[bytes, bool], CleanMessage] = {}

    @property
    def scope(self) -> RedactionScope:
        """Whose texts these are; after :meth:`gather` with the people that its calls came from."""
        return self._scope

    def gather(self, calls: Iterable[Call]) -> tuple[Message, ...]:
        """Return everything that these calls say, each message once; it is to be redacted at once."""
        people: dict[str, None] = {}
        for call in calls:
            people |= dict.fromkeys(_people(call))
            said = [*_messages(call), _fields_as_message(call)]
            keys = [message.canonical() for message in said]
            self._keys[call.exchange.exchange_id] = keys
            self._asked.update(zip(keys, said, strict=True))
        self._scope = replace(self._scope, people=tuple(people))
        return tuple(self._asked.values())

    def fill(self, redacted: Sequence[RedactedMessage]) -> None:
        """Take what redaction made of the gathered messages."""
        self._clean = dict(zip(self._asked, redacted, strict=True))
        self._asked = {}

    def prepare(self, calls: Iterable[Call]) -> None:
        """Redact everything that these calls say, at once, here."""
        said = self.gather(calls)
        self.fill(self._redactor.redact_messages(said, scope=self._scope))

    def once_more(self, calls: Iterable[Call], stored: Sequence[Message]) -> list[RedactedMessage]:
        """Redact stored messages together with what these calls say; return the stored ones."""
        said = {
            message.canonical(): message
            for call in calls
            for message in (*_messages(call), _fields_as_message(call))
        }
        return self._redactor.redact_stored([*said.values()], stored, scope=self._scope)

    def clean(self, call: Call, without: frozenset[CaptureField]) -> CleanCall:
        """Return the call with every string redacted and less what policy leaves out.

        The call must have been prepared.
        """
        *said, fields = self._keys[call.exchange.exchange_id]
        hidden, known = CaptureField.REASONING in without, self._named_already
        messages = [known.get((key, hidden)) or self._named(key, hidden) for key in said]
        output = messages.pop() if call.output is not None else None
        return CleanCall(tuple(messages), output, self._fields(call, self._clean[fields], without))

    def _named(self, key: bytes, without_reasoning: bool) -> CleanMessage:
        """Return a message with its name; one that is resent is named once."""
        found = self._named_already.get((key, without_reasoning))
        if found is None:
            found = self._name(self._clean[key], without_reasoning)
            self._named_already[key, without_reasoning] = found
        return found

    def _name(self, redacted: RedactedMessage, without_reasoning: bool) -> CleanMessage:
        derived = redacted.message.derived
        kept = ("named", self._namer, self._scope.tenant_id, without_reasoning)
        if kept not in derived:  # else said before: most of a history that is resent
            message = redacted.message
            if without_reasoning:
                rest = (part for part in message.parts if not isinstance(part, ReasoningPart))
                message = replace(message, parts=tuple(rest))
            parts = message.canonical_parts().decode("utf-8", "replace")
            # A message that held itself would stay until the collector runs.
            other = None if message is redacted.message else message
            derived[kept] = self._message_id(message, parts), other, parts
        message_id, other, parts = derived[kept]
        return CleanMessage(
            message_id=message_id,
            message=other or redacted.message,
            parts=parts,
            report=redacted.report,
            subjects=redacted.subjects,
        )

    def _message_id(self, message: Message, parts: str) -> str:
        tenant = self._scope.tenant_id
        if "\ufffd" in parts:  # replacing broken text may have changed the order of keys
            named = stored_message(message.role, json.loads(parts), message.name)
            return self._namer.message_id(tenant, named)
        return self._namer.canonical_id(tenant, message.canonical())

    def _fields(
        self, call: Call, redacted: RedactedMessage, without: frozenset[CaptureField]
    ) -> CleanFields:
        part = redacted.message.parts[0]
        if not isinstance(part, OpaquePart) or not isinstance(part.value, dict):
            raise RedactionError("redaction changed the shape of a call; it is held back")
        values = part.value

        def field(name: str, left_out: CaptureField | None = None) -> JsonValue:
            return None if left_out in without else values.get(name)

        def text(name: str, left_out: CaptureField | None = None) -> str | None:
            value = field(name, left_out)
            return None if value is None else str(value)

        response_id = None if CaptureField.RESPONSE_ID in without else call.response_id
        return CleanFields(
            tools=field("tools", CaptureField.TOOLS) or [],
            sampling=field("sampling", CaptureField.SAMPLING) or {},
            ext=field("ext", CaptureField.EXT) or {},
            arguments=field("arguments"),
            result=field("result"),
            tool_name=text("tool") or "",
            tool_server=text("server") or "",
            error=text("error", CaptureField.ERROR),
            model_requested=text("model_requested"),
            model_served=text("model_served"),
            agent=self._agent_name(text("agent")),
            acts_as=self._agent_name(text("acts_as")),
            response_id=public_id(self._redactor, self._namer, self._scope.tenant_id, response_id),
            report=_under_fields(redacted.report),
            subjects=(*redacted.subjects, *(call.exchange.subjects or ())),
            derived=redacted.message.derived,
        )

    def _agent_name(self, name: str | None) -> str | None:
        """Return an agent's name; for a long number, which may be somebody's, its keyed hash."""
        if name is None or any(map(str.isalpha, name)):
            return name
        if sum(map(str.isdigit, name)) < _LONG_NUMBER:
            return name
        return self._namer.name(self._scope.tenant_id, "agent", name)


def public_id(
    redactor: CallRedactor, namer: Namer, tenant_id: str, value: str | None
) -> str | None:
    """Return an id of an API as it is where nothing can hide in it, else its keyed hash.

    A step's ``response_id`` and the target of feedback that names it come out equal.
    """
    if value is None:
        return None
    if looks_like_an_id(value):
        scope = RedactionScope(tenant_id=tenant_id, trajectory_id="")
        if redactor.redact_text(value, scope=scope, path="/response_id").text == value:
            return value
    return namer.name(tenant_id, "id", value)


def _people(call: Call) -> Iterator[str]:
    """Yield the ids that a call gives of its end user, and of a session when it may be somebody's."""
    if call.end_user:
        yield call.end_user
    yield from call.also_named
    for hint in call.hints:
        if hint.source.startswith("client:") and (
            not looks_like_an_id(hint.value) or _DIGITS.fullmatch(hint.value)
        ):
            yield hint.value


def _messages(call: Call) -> list[Message]:
    return [*call.context, *([call.output] if call.output is not None else [])]


def _fields_as_message(call: Call) -> Message:
    """Return what a call holds beside its messages in a message's shape, to be redacted with them."""
    dispatch = call.dispatch
    fields: dict[str, JsonValue] = {
        "tools": [*call.tools],
        "sampling": call.sampling,
        "ext": call.ext,
        "error": call.error,
        "model_requested": call.model_requested,
        "model_served": call.model_served,
        "agent": call.agent,
        "acts_as": call.acts_as,
    }
    if dispatch is not None:
        fields["tool"], fields["server"] = dispatch.name, dispatch.server
        fields["arguments"], fields["result"] = dispatch.arguments, dispatch.result
    said: JsonObject = {n: value for n, value in fields.items() if value not in (None, [], {}, "")}
    if dispatch is None:
        return _of_tools(call.tools, said)
    return same_message(_as_message(said))


_LATELY: dict[tuple[int, bytes], tuple[tuple[JsonObject, ...], Message]] = {}


def _of_tools(tools: tuple[JsonObject, ...], said: JsonObject) -> Message:
    """Return the message of fields; the same definitions of tools are not looked through again."""
    rest = marshal.dumps([*sorted((n, v) for n, v in said.items() if n != "tools")], 2)
    found = _LATELY.get((id(tools), rest))
    if found is not None and found[0] is tools:
        return found[1]
    message = same_message(_as_message(said))
    if len(_LATELY) >= _FEW:
        _LATELY.clear()
    _LATELY[id(tools), rest] = (tools, message)
    return message


def _as_message(said: JsonObject) -> Message:
    return Message(BESIDE_MESSAGES, (OpaquePart(said),))


def _under_fields(report: RedactionReport) -> RedactionReport:
    """Return the report with places named as the call's own fields."""
    places = tuple(
        place._replace(path=place.path.removeprefix(_WRAPPER)) for place in report.places
    )
    return replace(report, places=places)


_LONG_NUMBER = 6
"""Digits from which on a number may be somebody's: an account's, a phone's."""
_DIGITS = re.compile(r"[\d\-. /]+")
_FEW = 256
_WRAPPER = "/parts/0/value"
