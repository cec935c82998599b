"""What an OpenAI Realtime conversation was when each of its responses began."""

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import as_list, as_object, as_text, name_media, without

_ADDED = frozenset(
    {"conversation.item.created", "conversation.item.added", "conversation.item.done"}
)


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


__all__ = ["RealtimeState"]
