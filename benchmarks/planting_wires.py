"""Plants values in golden wire files: what each dialect's own clients and servers said, with other words.

Texts of the golden files are replaced by sentences that hold a value, wherever a dialect puts them:
in JSON and JSON within it, in events, lines, AWS frames and WebSocket messages, and split over as many
pieces as the text was.
"""

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.planting import Secret
from tests.golden.calls.replay import SCENARIOS, load
from trajectory.dialects.event_stream import EventStreamDecoder, encode_message
from trajectory.dialects.websocket import pack_message, read_messages
from trajectory.exchange import Exchange

_SAID = (
    "What is 19 + 23? Use the tool. Grüße 🙂", "You are a calculator.", "I should add.",
    "The sum is 42. ✓", "Six times seven is", "Six times seven?", "Thanks. Once more?",
    "Add two integers.", "no negative numbers", "no such order", "No such model", "Quota exceeded",
    "Too many requests", "Slow down", "The agent cannot",
)  # fmt: skip
"""What people, models, tools and errors say in the golden files."""
_ALONE = frozenset({"42", "shipped", "lamp", "pending"})
"""Results of tools that are a whole string."""
_LEFT_OUT = frozenset({"openai_encodings"})
"""Compressed twins of ``openai_chat``."""

type Leaf = tuple[str, Callable[[str], None], str]
"""Key path without indices, what puts another string in its place, and the string."""


def scenarios() -> list[str]:
    """Return the golden files that values are planted in."""
    return [name for name in SCENARIOS if name not in _LEFT_OUT]


@dataclass(slots=True)
class Planting:
    """The values of one run through a scenario: the same text becomes the same sentence."""

    secrets: Iterator[Secret]
    sentences: dict[str, Secret] = field(default_factory=dict, repr=False)
    used: dict[str, Secret] = field(default_factory=dict, repr=False)
    """Values that stand in what was written."""

    def sentence(self, text: str) -> str:
        """Return the sentence in a text's place."""
        if text not in self.sentences:
            self.sentences[text] = next(self.secrets)
        secret = self.sentences[text]
        self.used[secret.value] = secret
        return secret.sentence


def exchanges(name: str, secrets: Iterator[Secret]) -> Iterator[tuple[Exchange, list[Secret]]]:
    """Yield a scenario's exchanges with other words, and the values that each holds."""
    planting = Planting(secrets)
    for exchange, _ in load(name):
        planting.used = {}
        request = replace(exchange.request, body=_planted(exchange.request.body, planting))
        response = exchange.response
        if response is not None:
            response = replace(response, body=_planted(response.body, planting))
        yield replace(exchange, request=request, response=response), list(planting.used.values())


def _planted(body: bytes, planting: Planting) -> bytes:
    """Return a body of any kind with its texts replaced."""
    if not body:
        return body
    for way in (_websocket, _frames, _lines):
        changed = way(body, planting)
        if changed is not None:
            return changed
    return body


def _lines(body: bytes, planting: Planting) -> bytes | None:
    """JSON as a whole, else one JSON value in each line or event."""
    text = body.decode("utf-8")
    try:
        whole = [json.loads(text)]
    except ValueError:
        whole = []
    if whole:
        _replace(whole, planting)
        return json.dumps(whole[0]).encode()
    lines = text.split("\n")
    values: dict[int, tuple[str, Any]] = {}
    for place, line in enumerate(lines):
        head = (
            "data: " if line.startswith("data: ") else "data:" if line.startswith("data:") else ""
        )
        try:
            values[place] = (head, json.loads(line[len(head) :]))
        except ValueError:
            continue
    _replace([value for _, value in values.values()], planting)
    for place, (head, value) in values.items():
        lines[place] = head + json.dumps(value) + ("\r" if lines[place].endswith("\r") else "")
    return "\n".join(lines).encode()


def _frames(body: bytes, planting: Planting) -> bytes | None:
    """An AWS event stream; what models answer is base64 within JSON when it was invoked."""
    decoder = EventStreamDecoder()
    messages = decoder.feed(body)
    if not messages or decoder.problem is not None:
        return None
    values = [json.loads(message.payload or b"{}") for message in messages]
    inner = [json.loads(base64.b64decode(v["bytes"])) if "bytes" in v else v for v in values]
    _replace(inner, planting)
    out = b""
    for message, value, changed in zip(messages, values, inner, strict=True):
        if "bytes" in value:
            value["bytes"] = base64.b64encode(json.dumps(changed).encode()).decode()
        headers = {name: str(value) for name, value in message.headers.items()}
        out += encode_message(headers, json.dumps(value).encode())
    return out


def _websocket(body: bytes, planting: Planting) -> bytes | None:
    """The messages of one side of a conversation."""
    try:
        messages = read_messages(body, b"")
        values = [json.loads(message.content) for message in messages]
    except ValueError:
        return None
    if not messages:
        return None
    _replace(values, planting)
    return b"".join(
        pack_message(message.number, message.at, json.dumps(value).encode(), is_text=True)
        for message, value in zip(messages, values, strict=True)
    )


def _replace(values: list[Any], planting: Planting) -> None:
    """Put sentences where texts stand in a sequence of JSON values."""
    by_path: dict[str, list[Leaf]] = {}
    for value in values:
        for leaf in _leaves(value, ""):
            by_path.setdefault(leaf[0], []).append(leaf)
    for leaves in by_path.values():
        if not any(_within(leaf, planting) for leaf in leaves):
            _across(leaves, planting)


def _leaves(value: Any, path: str) -> Iterator[Leaf]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        at = f"{path}.{key}" if isinstance(value, dict) else path
        if isinstance(item, str):
            yield at, lambda new, key=key: value.__setitem__(key, new), item  # type: ignore[misc]
        elif isinstance(item, dict | list):
            yield from _leaves(item, at)


def _within(leaf: Leaf, planting: Planting) -> bool:
    """Replace a text that stands in one string, escaped where the string is JSON."""
    path, put, old = leaf
    new = old
    if old in _ALONE and not path.endswith((".arguments", ".partial_json")):
        new = planting.sentence(old)
    in_json = old[:1] in ("{", "[")
    for text in _SAID:
        if text in new:
            sentence = planting.sentence(text)
            new = new.replace(text, json.dumps(sentence)[1:-1] if in_json else sentence)
    if new != old:
        put(new)
    return new != old


def _across(leaves: list[Leaf], planting: Planting) -> None:
    """Replace a text that stands in pieces by a sentence in as many pieces."""
    joined = "".join(old for _, _, old in leaves)
    for text in _SAID:
        start = joined.find(text)
        if start < 0:
            continue
        at, holding = 0, []
        for leaf in leaves:
            if at < start + len(text) and at + len(leaf[2]) > start and leaf[2]:
                holding.append(leaf)
            at += len(leaf[2])
        sentence = planting.sentence(text)
        size = -(-len(sentence) // len(holding))
        for place, (_, put, _) in enumerate(holding):
            put(sentence[place * size : (place + 1) * size])
        return
