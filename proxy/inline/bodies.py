"""The bytes of answers: whole JSON, server-sent events, lines of JSON, as their clients get them."""

import json
import re
from collections.abc import Callable

from proxy.inline.answers import CallSurrogates
from proxy.inline.bedrock import EventStreamRestorer
from proxy.inline.contents import (
    BodyRestorer,
    content_restorer,
    restored_list,
    restored_object,
)
from proxy.inline.events import (
    AnswerEvents,
    ChatEvents,
    Event,
    GeminiEvents,
    MessagesEvents,
    OllamaEvents,
    ResponsesEvents,
)
from proxy.inline.kept_objects import kept_object
from proxy.inline.pieces import LONGEST, OpenPieces
from proxy.request_json import dumped
from trajectory.dialects.content_encoding import decode_body

_END_OF_EVENT = re.compile(rb"\r\n\r\n|\n\n|\r\r")


def whole_json(body: bytes, surrogates: CallSurrogates) -> bytes:
    """Return a whole answer restored; what is not JSON is restored as a text."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return body
    if not text.lstrip().startswith(("{", "[")):
        return surrogates.text(text).encode()
    try:
        value = json.loads(text)
        told = restored_list(value, surrogates) or restored_object(value, surrogates)
    except (ValueError, RecursionError):
        return body  # nobody can tell what in it is a tool's
    return body if told == value else dumped(told)


class SseRestorer:
    """Restores a stream of server-sent events, whatever the boundaries of its chunks.

    What does not change passes byte for byte; an event waits for its own end.
    """

    def __init__(self, stream: AnswerEvents) -> None:
        self._stream = stream
        self._open = OpenPieces(_END_OF_EVENT)

    def feed(self, data: bytes) -> bytes:
        """Return all events that ``data`` completes, as the client gets them."""
        return b"".join(map(self._event, self._open.feed(data)))

    def close(self) -> bytes:
        """Return what is left when the stream has ended."""
        left = self._open.left()
        told = self._event(left) if left else b""
        return told + b"".join(map(self._written, self._stream.end()))

    def _event(self, raw: bytes) -> bytes:
        lines = raw.splitlines(keepends=True)
        data = [line for line in lines if line.startswith(b"data:")]
        said = b"\n".join([line[5:].strip() for line in data])
        try:
            value = json.loads(said) if said[:1] == b"{" else None
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            return self._text(raw, said)
        try:
            told = self._stream.take(value)
        except RecursionError:
            return raw
        if told == [value]:
            return raw
        before = b"".join(map(self._written, told[:-1]))
        if not told:
            return b""
        first = lines.index(data[0])
        end = data[0][len(data[0].rstrip(b"\r\n")) :]
        lines[first] = b"data: " + dumped(told[-1]) + end
        return before + b"".join(
            line for line in lines if line not in data[1:] or line is lines[first]
        )

    def _text(self, raw: bytes, said: bytes) -> bytes:
        """Return an event that is no object of JSON; at the stream's own end nothing is left behind.

        It stays as it is. It may be a call that only others can read, and a value with a line end would write
        events of its own.
        """
        if said == b"[DONE]":
            return b"".join(map(self._written, self._stream.end())) + raw
        return raw

    def _written(self, event: Event) -> bytes:
        name = str(event.get("type")).encode() if self._stream.named else b""
        head = b"event: " + name + b"\n" if name else b""
        return head + b"data: " + dumped(event) + b"\n\n"


class LineRestorer:
    """Restores a stream of lines of JSON."""

    def __init__(self, stream: AnswerEvents) -> None:
        self._stream = stream
        self._open = OpenPieces(re.compile(b"\n"))

    def feed(self, data: bytes) -> bytes:
        """Return all lines that ``data`` completes, as the client gets them."""
        return b"".join(map(self._line, self._open.feed(data)))

    def close(self) -> bytes:
        """Return what is left when the stream has ended."""
        left = self._open.left()
        told = self._line(left) if left else b""
        return told + b"".join(dumped(one) + b"\n" for one in self._stream.end())

    def _line(self, line: bytes) -> bytes:
        try:
            value = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            return line
        try:
            told = self._stream.take(value)
        except RecursionError:
            return line
        end = b"\n" if line.endswith(b"\n") else b""
        return line if told == [value] else b"\n".join(map(dumped, told)) + end


class WholeRestorer:
    """Restores an answer at its end; of a stream that came compressed, all at once."""

    def __init__(
        self,
        surrogates: CallSurrogates,
        stream: BodyRestorer | None,
        encoding: str | None,
        chunks: AnswerEvents | None = None,
    ) -> None:
        self._surrogates = surrogates
        self._chunks = chunks
        self._stream = stream
        self._encoding = encoding
        self._pieces: list[bytes] = []

    def feed(self, data: bytes) -> bytes:
        """Keep a piece."""
        self._pieces.append(data)
        return b""

    def close(self) -> bytes:
        """Return the answer."""
        body = b"".join(self._pieces)
        if self._encoding is not None:
            decoded = decode_body(body, self._encoding, limit=LONGEST)
            if decoded.problem is not None:
                raise ValueError(decoded.problem)
            body = decoded.data
        if self._stream is not None:
            return self._stream.feed(body) + self._stream.close()
        if self._chunks is not None and body.lstrip()[:1] == b"[":
            return _array(body, self._chunks)
        return whole_json(body, self._surrogates)


def restorer_of(
    kind: bytes, path: bytes, surrogates: CallSurrogates, encoding: bytes | None
) -> BodyRestorer | None:
    """Return what restores an answer; None for one that is no text or in an unknown encoding.

    Args:
        kind: its content type.
        path: of the request, which tells the dialect.
        surrogates: of the call.
        encoding: its content encoding.
    """
    coding = None if encoding is None else encoding.decode("latin-1")
    if coding is not None and decode_body(b"", coding).problem is not None:
        return None
    encoded = is_encoded(encoding)
    stream: BodyRestorer | None = None
    bare = path.partition(b"?")[0]
    if kind == b"application/vnd.amazon.eventstream" and not encoded:
        return EventStreamRestorer(surrogates, is_invoked=not bare.endswith(b"/converse-stream"))
    dialect = next((one for end, one in _STREAMS.items() if bare.endswith(end)), ChatEvents)
    about = kept_object(b"GET", bare)
    if is_content(bare):
        content = content_restorer(surrogates)
        if content is not None and encoded:
            return WholeRestorer(surrogates, content, coding)
        return content
    if about is not None and about.kind == "responses":
        dialect = ResponsesEvents
    if kind in (b"text/event-stream", b"application/x-ndjson"):
        events = dialect(surrogates)
        lines = kind == b"application/x-ndjson"
        stream = LineRestorer(events) if lines else SseRestorer(events)
        if not encoded:
            return stream
    elif not (kind.startswith(b"text/") or kind.endswith((b"/json", b"+json"))):
        return None
    chunks = GeminiEvents(surrogates) if dialect is GeminiEvents else None
    return WholeRestorer(surrogates, stream, coding, chunks)


def is_content(path: bytes) -> bool:
    """Tell whether a request asks for what a file or a batch holds, which may be as long as it likes."""
    about = kept_object(b"GET", path)
    return about is not None and about.part in ("content", "results")


def is_encoded(encoding: bytes | None) -> bool:
    """Tell whether the header of an answer's encoding says that there is one."""
    return encoding is not None and encoding.strip().lower() not in (b"", b"identity")


def _array(body: bytes, events: AnswerEvents) -> bytes:
    """Return Gemini's other stream, an array of chunks, restored."""
    try:
        chunks = json.loads(body)
    except (ValueError, RecursionError):
        return body
    told = [one for chunk in chunks for one in events.take(chunk)]
    return dumped([*told, *events.end()])


_STREAMS: dict[bytes, type[AnswerEvents]] = {
    b"/responses": ResponsesEvents,
    b"/messages": MessagesEvents,
    b"enerateContent": GeminiEvents,
    b"/api/chat": OllamaEvents,
    b"/api/generate": OllamaEvents,
}


def restored_stream(
    tee: Callable[[bytes], bytes | list[bytes]] | None,
    restorer: BodyRestorer,
    fault: Callable[[str, Exception], None],
) -> Callable[[bytes], list[bytes]]:
    """Return a tee that gives the client what another one gives, restored.

    After a fault of our own the rest goes on as the provider wrote it: no surrogate says anything.
    """
    broken = False

    def stream(data: bytes) -> list[bytes]:
        nonlocal broken
        told = data if tee is None else tee(data)
        pieces = told if isinstance(told, list) else [told]
        if broken:
            return [piece for piece in pieces if piece]
        try:
            out = [restorer.feed(piece) for piece in pieces if piece]
            if not data:
                out.append(restorer.close())
        except Exception as error:  # noqa: BLE001 - see above
            broken = True
            fault("inline", error)
            return [piece for piece in pieces if piece]
        return [piece for piece in out if piece]

    return stream
