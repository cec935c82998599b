"""What the fake provider says, before a wire format cuts it into bytes."""

import gzip
import json
import zlib
from dataclasses import dataclass
from typing import Any

import brotli
import zstandard

from tests.support.upstream import Reply, plain

QUESTION = "What is 19 + 23? Use the tool. Grüße 🙂"
SYSTEM = "You are a calculator."
ANSWER = "The sum is 42. ✓"
ARGUMENTS = {"a": 19, "b": 23}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


@dataclass(frozen=True)
class ToolUse:
    """One tool call of an answer."""

    call_id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """One answer of the model: a text, tool calls, or both."""

    response_id: str
    text: str = ""
    calls: tuple[ToolUse, ...] = ()
    model: str = "tiny-1"
    usage: tuple[int, int] | None = None
    """Tokens of prompt and answer; without them each wire states numbers of its own."""
    items: str = "1"
    """Where parts have ids, what these end in."""


def adding(name: str, *, told: bool, call_id: str = "call_1") -> Answer:
    """Return the sum once the tool told it, else a call of the tool."""
    if told:
        return Answer(name, ANSWER)
    return Answer(name, calls=(ToolUse(call_id, "add", ARGUMENTS),))


def cut(text: str, *places: int) -> list[str]:
    """Return a text in pieces that end at these places."""
    ends = [*places, len(text)]
    pieces = [text[start:end] for start, end in zip([0, *places], ends, strict=True)]
    return [piece for piece in pieces if piece]


def sse(*values: object) -> list[bytes]:
    """Return server-sent events without names."""
    return [f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode() for value in values]


def named_sse(events: list[dict[str, Any]]) -> list[bytes]:
    """Return server-sent events that bear their type as name."""
    return [b"event: %s\n%s" % (event["type"].encode(), sse(event)[0]) for event in events]


def encoded(encoding: str, body: bytes) -> Reply:
    """Return a JSON reply under a content encoding."""
    data = {
        "gzip": lambda: gzip.compress(body, mtime=0),
        "deflate": lambda: zlib.compress(body),
        "br": lambda: brotli.compress(body),
        "zstd": lambda: zstandard.ZstdCompressor().compress(body),
    }[encoding]()
    return plain(200, data, ("Content-Type", "application/json"), ("Content-Encoding", encoding))
