"""Requests that clients hand in together, to be answered later: each has a conversation of its own."""

import json
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from proxy.inline.dialects import MessagesRequest
from proxy.inline.openai import ChatRequest, CompletionRequest, ResponsesRequest
from proxy.inline.requests import (
    OTHER,
    InnerRequest,
    Path,
    RequestWithoutConversation,
    UnreadableRequestError,
    WireRequest,
)
from trajectory.exchange import Headers

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class NamedRequest(WireRequest):
    """One request of a batch, with the name that its client knows its answer by."""

    ends = ()
    inside: ClassVar[str]
    """The field that holds the request itself."""

    def _reads(self, value: dict[str, Any]) -> bool:
        inner, read = value.get(self.inside), self._dialect(value)
        if (
            read is None
            or not isinstance(inner, dict)
            or not isinstance(value.get("custom_id"), str)
        ):
            return False
        self._request = read(json.dumps(inner).encode())
        return self._request.conversation() is None  # nobody knows when it is answered

    @abstractmethod
    def _dialect(self, value: dict[str, Any]) -> type[WireRequest] | None:
        """Return how the request itself is read."""

    def place(self, path: Path, kind: str, said: str) -> Path | None:
        if path[0] == self.inside and len(path) > 1:
            return self._request.place(path[1:], kind, said)
        return super().place(path, kind, said)

    def _place(self, path: Path, kind: str, said: str) -> Path | None:  # noqa: ARG002
        return None

    def messages(self) -> Iterator[tuple[str, Path, str]]:
        for role, path, text in self._request.messages():
            yield role, ((self.inside, *path) if path else path), text

    def results(self) -> Iterator[tuple[str, Any]]:
        self._request.calls = self.calls
        yield from self._request.results()

    def tools(self) -> frozenset[str]:
        self._request.calls = self.calls
        return self._request.tools()

    def said_by(self, tool: str) -> str:
        self._request.calls = self.calls
        return self._request.said_by(tool)

    def people(self, headers: Headers) -> tuple[str, ...]:
        return self._request.people(headers)

    def wants_json(self) -> bool:
        return self._request.wants_json()

    def goes_on_from(self) -> str | None:
        return self._request.goes_on_from()

    def named(self, told: str) -> str:
        return str(json.loads(told)["custom_id"])


class BatchLine(NamedRequest):
    """A line of a file that OpenAI answers as a batch."""

    inside = "body"

    def _dialect(self, value: dict[str, Any]) -> type[WireRequest] | None:
        url = str(value.get("url")).encode()
        dialects = (ChatRequest, CompletionRequest, ResponsesRequest)
        return next((one for one in dialects if url.endswith(one.ends)), None)


class BatchedMessage(NamedRequest):
    """A request of a batch of Anthropic messages."""

    inside = "params"

    def _dialect(self, value: dict[str, Any]) -> type[WireRequest]:  # noqa: ARG002
        return MessagesRequest


class BatchRequest(RequestWithoutConversation):
    """OpenAI's batch, of the requests in a file."""

    ends = (b"/batches",)

    def _reads(self, value: dict[str, Any]) -> bool:
        return isinstance(value.get("input_file_id"), str)

    def _place(self, path: Path, kind: str, said: str) -> Path | None:  # noqa: ARG002
        return OTHER + path if path[0] == "metadata" else None

    def is_kept(self) -> bool:
        return True

    def uses(self) -> frozenset[str]:
        return frozenset({self.value["input_file_id"]})


class MessageBatchRequest(RequestWithoutConversation):
    """Anthropic's batch, whose requests are in its body; what is read as one is the rest."""

    ends = (b"/messages/batches",)

    def __init__(self, body: bytes) -> None:
        """Read a batch, and find its requests."""
        try:
            text = body.decode()
            spans, end = _requests(text)
        except (ValueError, RecursionError):
            raise UnreadableRequestError from None
        start = spans.pop(0)[0]
        edges = [start, *(at for span in spans for at in span), end]
        self._gaps = [text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]
        self.inner = [InnerRequest(BatchedMessage, text[a:b].encode()) for a, b in spans]
        super().__init__(f"{text[:start]}[]{text[end:]}".encode())

    def _reads(self, value: dict[str, Any]) -> bool:
        return value.get("requests") == []

    def _place(self, path: Path, kind: str, said: str) -> Path | None:  # noqa: ARG002
        return None

    def is_kept(self) -> bool:
        return True

    def written(self, told: str, inner: Sequence[bytes]) -> bytes:
        ((start, _),), end = _requests(told)
        first, *gaps = [one.encode() for one in self._gaps]
        pieces = [piece for pair in zip(inner, gaps, strict=True) for piece in pair]
        return b"".join([told[:start].encode(), first, *pieces, told[end:].encode()])


def _requests(text: str) -> tuple[list[tuple[int, int]], int]:
    """Return where the list of a batch's requests begins, where each of them stands, and where it ends.

    Raises:
        ValueError: there is no such list, or more than one.
    """
    found: list[tuple[int, int]] = []
    end = 0
    at = _behind(text, _space(text, 0), "{")
    while True:
        key, at = _DECODER.raw_decode(text, _space(text, at))
        at = _space(text, _behind(text, _space(text, at), ":"))
        if key != "requests":
            _, at = _DECODER.raw_decode(text, at)
        elif found:
            raise ValueError("the requests stand twice")
        else:
            found.append((at, at))
            end = at = _list(text, at, found)
        at = _space(text, at)
        if text[at : at + 1] != ",":
            break
        at += 1
    if not found:
        raise ValueError("no requests")
    return found, end


def _list(text: str, at: int, found: list[tuple[int, int]]) -> int:
    """Add where each value of a list stands; return where the list ends."""
    at = _space(text, _behind(text, at, "["))
    if text[at : at + 1] == "]":
        return at + 1
    while True:
        _, end = _DECODER.raw_decode(text, at)
        found.append((at, end))
        at = _space(text, end)
        if text[at : at + 1] == "]":
            return at + 1
        at = _space(text, _behind(text, at, ","))


def _space(text: str, at: int) -> int:
    """Return where the next word of a JSON text begins."""
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _behind(text: str, at: int, mark: str) -> int:
    """Return the place behind a mark that must stand there."""
    if text[at : at + 1] != mark:
        raise ValueError(f"no {mark}")
    return at + 1
