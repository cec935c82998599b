"""Server-sent events from raw bytes: a decoder without input or output of its own.

Follows the HTML standard's rules (UTF-8, an optional byte order mark, lines ended by CR, LF or
CRLF, fields ``data``, ``event``, ``id``; comments skipped), fed with any split of the bytes.
"""

import codecs
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event of a stream."""

    data: str = field(repr=False)
    event: str = "message"
    event_id: str | None = None
    complete: bool = True
    """False for what was pending when the stream broke off; its data may be cut anywhere."""


class SseDecoder:
    """Turns bytes into events; equal for every way of splitting the same bytes."""

    def __init__(self) -> None:
        """Begin before the first byte."""
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._pending = ""
        self._data: list[str] = []
        self._event = ""
        self._event_id: str | None = None
        self._at_start = True
        self._after_return = False

    def feed(self, data: bytes) -> list[SseEvent]:
        """Take more bytes and return the events that they complete."""
        return self._take_text(self._utf8.decode(data))

    def close(self) -> list[SseEvent]:
        """End the stream; return the pending event, if any, marked as incomplete."""
        events = self._take_text(self._utf8.decode(b"", final=True))
        if self._pending:
            self._take_line(self._pending)
            self._pending = ""
        if self._data:
            events.append(self._event_of(complete=False))
        return events

    def _take_text(self, text: str) -> list[SseEvent]:
        if not text:
            return []
        if self._at_start:
            self._at_start = False
            text = text.removeprefix("\ufeff")
        if self._after_return and text.startswith("\n"):
            text = text[1:]
            self._after_return = False
        if text:
            self._after_return = text.endswith("\r")
        lines = (self._pending + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._pending = lines.pop()
        events = []
        for line in lines:
            if line:
                self._take_line(line)
            elif self._data:
                events.append(self._event_of(complete=True))
            else:
                self._event = ""
        return events

    def _take_line(self, line: str) -> None:
        name, colon, value = line.partition(":")
        if colon:
            value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._event_id = value

    def _event_of(self, *, complete: bool) -> SseEvent:
        event = SseEvent(
            data="\n".join(self._data),
            event=self._event or "message",
            event_id=self._event_id,
            complete=complete,
        )
        self._data = []
        self._event = ""
        return event


def decode_events(body: bytes) -> list[SseEvent]:
    """Return all events of a whole body, the last one marked when the body breaks off in it."""
    decoder = SseDecoder()
    return decoder.feed(body) + decoder.close()


__all__ = ["SseDecoder", "SseEvent", "decode_events"]
