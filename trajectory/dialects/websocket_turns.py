"""WebSocket conversations with models: each turn becomes an exchange as if it had been posted alone.

OpenAI responses over WebSocket send one ``response.create`` for each turn, which holds the whole
request. In Realtime conversations the request is what session and items were when the response
began; ``RealtimeState`` gathers it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.websocket import WebSocketMessage, read_messages
from trajectory.dialects.wire import (
    UnreadableError,
    as_list,
    as_object,
    as_text,
    header,
    name_media,
    parse_json_or_none,
    without,
)
from trajectory.exchange import Exchange, ExchangeOutcome, HttpResponse

_ENDS = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.done", "error"}
)
_EVENT_STREAM = (("content-type", "text/event-stream"),)


class RealtimeState:
    """Session, items and transcripts, gathered from the messages of both sides in their order."""

    def __init__(self) -> None:
        """Begin before the first message."""
        self._session: JsonObject = {}
        self._items: dict[str, JsonObject] = {}
        self._order: list[str] = []
        self._made: dict[str, str] = {}
        """Which response an item came from."""
        self._asked: list[JsonObject] = []
        """Overrides of responses that were asked for and have not begun."""
        self._begun: dict[str, JsonObject] = {}
        """What was known when a response began: session, overrides, names of items."""

    def from_client(self, value: JsonObject) -> None:
        """Take a message of the client; what it changes, the server says again."""
        if value.get("type") == "response.create":
            self._asked.append(as_object(value.get("response")))

    def from_server(self, value: JsonObject) -> None:
        """Take a message of the server."""
        kind = as_text(value.get("type")) or ""
        if kind in ("session.created", "session.updated"):
            self._session = as_object(value.get("session"))
        elif kind in _ADDED:
            self._take(as_object(value.get("item")), as_text(value.get("previous_item_id")))
        elif kind == "conversation.item.deleted":
            name = as_text(value.get("item_id"))
            self._order = [item for item in self._order if item != name]
        elif kind == "conversation.item.input_audio_transcription.completed":
            self._transcribe(value)
        elif kind in ("response.output_item.added", "response.output_item.done"):
            item = as_object(value.get("item"))
            self._made[as_text(item.get("id")) or ""] = as_text(value.get("response_id")) or ""
            self._take(item, None)

    def _take(self, item: JsonObject, before: str | None) -> None:
        name = as_text(item.get("id"))
        if name is None:
            return
        known = self._items.get(name)
        if known is None or len(str(item)) >= len(str(known)):
            self._items[name] = item
        if name not in self._order:
            place = self._order.index(before) + 1 if before in self._order else len(self._order)
            self._order.insert(place, name)

    def _transcribe(self, value: JsonObject) -> None:
        """Put the words of the user's speech into their item."""
        item = self._items.get(as_text(value.get("item_id")) or "")
        content = as_list(item.get("content")) if item is not None else []
        index = value.get("content_index")
        if item is None or not isinstance(index, int) or not 0 <= index < len(content):
            return
        part = {**as_object(content[index]), "transcript": value.get("transcript")}
        item["content"] = [*content[:index], part, *content[index + 1 :]]

    def begin(self, response: str) -> None:
        """Remember what the conversation is now: the response's request."""
        asked = self._asked.pop(0) if self._asked else {}
        names: list[JsonValue] = [*self._order]
        self._begun[response] = {"session": self._session, "asked": asked, "items": names}

    def request(self, response: str | None) -> JsonObject:
        """Return what a response was asked for: session, overrides, items with late transcripts."""
        begun = self._begun.get(response or "", {})
        asked = as_object(begun.get("asked"))
        own = asked.get("input")
        items: list[JsonValue] = [
            item
            for name in as_list(begun.get("items"))
            if isinstance(name, str)
            and self._made.get(name) != response
            and (item := self._items.get(name)) is not None
        ]
        if isinstance(own, list):
            items = [self._items.get(str(as_object(i).get("id")), as_object(i)) for i in own]
        return {
            "session": as_object(begun.get("session")),
            "response": without(asked, frozenset({"input"})),
            "items": name_media(items),
        }


@dataclass(slots=True)
class SocketTurn:
    """One request to the model and the events that answered it."""

    at: float
    request: JsonObject | None
    """None for a Realtime turn, whose request is known in the end."""
    response_id: str | None = None
    events: list[tuple[float, JsonObject]] = field(default_factory=list)
    over: bool = False


def is_conversation(exchange: Exchange) -> bool:
    """Tell whether this exchange became a WebSocket connection."""
    response = exchange.response
    if response is None or response.status != 101:
        return False
    return (header(response.headers, "upgrade") or "").lower() == "websocket"


def turns(exchange: Exchange) -> list[Exchange]:
    """Return the turns of a conversation; none where nothing was asked of a model.

    Raises:
        UnreadableError: nobody knows the conversation's language, or its frames are damaged.
    """
    path = exchange.request.path.rstrip("/")
    if not path.endswith(("/responses", "/realtime")):
        raise UnreadableError("dialect:unknown-websocket")
    told = list(_objects(exchange))
    if path.endswith("/responses"):
        found = _response_turns(told)
    else:
        state = RealtimeState()
        found = _realtime_turns(told, state)
        for turn in found:
            turn.request = state.request(turn.response_id)
    return [_exchange(exchange, number, turn) for number, turn in enumerate(found)]


def _objects(exchange: Exchange) -> Iterator[tuple[WebSocketMessage, JsonObject]]:
    answered = exchange.response.body if exchange.response is not None else b""
    try:
        messages = read_messages(exchange.request.body, answered)
    except ValueError:
        raise UnreadableError("websocket:frames") from None
    for message in messages:
        text = message.content.decode("utf-8", "replace")
        yield message, as_object(parse_json_or_none(text))


type _Told = list[tuple[WebSocketMessage, JsonObject]]


def _response_turns(told: _Told) -> list[SocketTurn]:
    """Return one turn for each ``response.create``; events belong to the oldest one that is open."""
    found: list[SocketTurn] = []
    for message, value in told:
        if message.from_client:
            if value.get("type") == "response.create":
                inner = value.get("response")
                asked = inner if isinstance(inner, dict) else value
                found.append(
                    SocketTurn(message.at, without(asked, frozenset({"type", "event_id"})))
                )
            continue
        turn = next((turn for turn in found if not turn.over), None)
        if turn is not None:
            turn.events.append((message.at, value))
            turn.over = as_text(value.get("type")) in _ENDS
    return found


def _realtime_turns(told: _Told, state: RealtimeState) -> list[SocketTurn]:
    """Return one turn for each response that began."""
    found: dict[str, SocketTurn] = {}
    for message, value in told:
        if message.from_client:
            state.from_client(value)
            continue
        state.from_server(value)
        response = as_object(value.get("response"))
        name = as_text(value.get("response_id")) or as_text(response.get("id"))
        if name is None:
            continue
        if name not in found:
            found[name] = SocketTurn(message.at, None, name)
            state.begin(name)
        found[name].events.append((message.at, value))
        found[name].over = found[name].over or as_text(value.get("type")) in _ENDS
    return list(found.values())


def _exchange(whole: Exchange, number: int, turn: SocketTurn) -> Exchange:
    """Return a turn as the exchange that a post and a stream of events would have been."""
    events = b"".join(
        b"data: " + json.dumps(value, ensure_ascii=True).encode() + b"\n\n"
        for _, value in turn.events
    )
    outcome = ExchangeOutcome.COMPLETE
    if not turn.over:
        cut = whole.outcome is ExchangeOutcome.COMPLETE
        outcome = ExchangeOutcome.UPSTREAM_ABORT if cut else whole.outcome
    request = replace(whole.request, method="POST", body=_body(turn.request))
    return replace(
        whole,
        exchange_id=whole.exchange_id if number == 0 else _name(whole.exchange_id, number),
        part_of=whole.exchange_id,
        released_of="",
        started_at=_when(turn.at),
        first_byte_at=_when(turn.events[0][0]) if turn.events else None,
        ended_at=_when(turn.events[-1][0]) if turn.events else whole.ended_at,
        request=replace(request, headers=_plain(request.headers)),
        response=HttpResponse(200, _EVENT_STREAM, events) if turn.events else None,
        outcome=outcome,
    )


def _body(value: JsonValue) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode()


def _plain(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return the headers without what only the connection meant."""
    own = ("content-encoding", "sec-websocket-", "upgrade", "connection")
    return tuple((name, value) for name, value in headers if not name.startswith(own))


def _name(exchange_id: str, number: int) -> str:
    """Return the name of a later turn: its connection's time, and a hash of name and number."""
    rest = blake2b(f"{exchange_id}/{number}".encode(), digest_size=10).hexdigest()
    return exchange_id[:12] + rest


def _when(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


_ADDED = frozenset(
    {"conversation.item.created", "conversation.item.added", "conversation.item.done"}
)
