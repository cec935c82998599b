"""Responses over a WebSocket: each message as the other side of the connection may see it.

The client asks with the body of a request, and its provider answers with the events of a stream. One
call is answered after the other.
"""

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from proxy.inline.answers import CallSurrogates
from proxy.inline.events import ResponsesEvents
from proxy.inline.kept_histories import HistoryOwner
from proxy.inline.openai import SocketRequest
from proxy.inline.route import RouteInline, UnpseudonymisedError
from proxy.request_json import dumped
from proxy.responses import Reason, answer
from trajectory.dialects.errors import Shape
from trajectory.exchange import Headers

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
"""Types of the events behind which nothing of a response follows."""


class ToldMessage(NamedTuple):
    """What becomes of a message of the client."""

    content: bytes | None
    """As its provider gets it; None where it does not."""
    refusal: bytes | None = None
    """What the client hears instead."""
    asks: bool = False
    """It asks for a response."""
    subjects: tuple[str, ...] | None = None
    """Whom its surrogates name; None where it has none."""


@dataclass(slots=True)
class _AwaitedResponse:
    """A response that was asked for, and has not ended."""

    surrogates: CallSurrogates | None
    """None where its request went on as it was."""
    events: ResponsesEvents | None = field(init=False)

    def __post_init__(self) -> None:
        self.events = None if self.surrogates is None else ResponsesEvents(self.surrogates)


class ResponsesSocket:
    """The messages of one connection."""

    def __init__(
        self,
        inline: RouteInline,
        owner: HistoryOwner,
        session: bytes | None,
        headers: Headers,
        fault: Callable[[str, Exception], None],
    ) -> None:
        """Read them for the client key that opened it.

        Args:
            inline: puts surrogates into them.
            owner: the client key.
            session: as the connection names it.
            headers: of the connection that name people.
            fault: hears of an error of our own.
        """
        self._inline = inline
        self._owner = owner
        self._session = session
        self._headers = headers
        self._fault = fault
        self._asked: deque[_AwaitedResponse] = deque()

    async def from_client(self, content: bytes, *, is_text: bool) -> ToldMessage:
        """Return what becomes of a message of the client; what fails does not go on."""
        try:
            return await self._told(content, is_text=is_text)
        except UnpseudonymisedError as error:
            reason = error.reason
        except Exception as error:  # noqa: BLE001 - whatever it is, the message must not pass
            self._fault("inline", error)
            reason = Reason.FAULT
        return ToldMessage(None, _refusal(reason))

    async def _told(self, content: bytes, *, is_text: bool) -> ToldMessage:
        asks = is_text and _value(content).get("type") == "response.create"
        call = await self._inline.pseudonymise(
            SocketRequest if is_text else _Binary,
            content,
            head=None,
            owner=self._owner,
            session=self._session,
            headers=self._headers,
        )
        if asks:
            self._asked.append(_AwaitedResponse(None if call is None else call.surrogates))
        if call is None:
            return ToldMessage(content, asks=asks)
        return ToldMessage(call.body, asks=asks, subjects=call.subjects)

    def from_server(self, content: bytes, *, is_text: bool) -> list[bytes]:
        """Return the messages that the client gets for one of the server."""
        try:
            return self._heard(content, is_text=is_text)
        except Exception as error:  # noqa: BLE001 - it goes on as its provider wrote it
            self._fault("inline", error)
            return [content]

    def _heard(self, content: bytes, *, is_text: bool) -> list[bytes]:
        value = _value(content) if is_text else {}
        asked = self._asked[0] if self._asked else None
        if asked is None or not value:
            return [content]
        told = [value] if asked.events is None else asked.events.take(value)
        if value.get("type") in _ENDS:
            self._asked.popleft()
            if asked.surrogates is not None:
                self._inline.returned(self._owner.route, asked.surrogates)
        return [content] if told == [value] else [*map(dumped, told)]


class _Binary(SocketRequest):
    """A message that is no text."""

    def _reads(self, value: dict[str, Any]) -> bool:  # noqa: ARG002
        return False


def _refusal(reason: Reason) -> bytes:
    """Return the event that tells a client why its message was not sent."""
    reply = answer(reason, Shape.OPENAI)
    return dumped({"type": "error", "status": reply.status, **json.loads(reply.body)})


def _value(content: bytes) -> dict[str, Any]:
    """Return an object of JSON; an empty one where it is none."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
