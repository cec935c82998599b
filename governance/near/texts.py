"""The text by which a conversation is compared: what was said last in it, system prompts left out."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

MOST_CHARACTERS = 2_000
"""Of a conversation its last ones, of an answer its first ones: what a step is about stands there,
and the index of a million steps stays a few gigabytes."""

_NO_TEXT = ("type", "role", "id", "call_id", "media_type", "signature")


class Said(NamedTuple):
    """One message: its role, and its parts as JSON."""

    role: str
    parts: str


def strings_in(value: Any, key: str = "") -> Iterable[str]:
    """Yield the texts in a JSON value; names of kinds and ids are none."""
    if isinstance(value, str):
        if key not in _NO_TEXT:
            yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item, key)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from strings_in(item, name)


def answer_text(answer: Said) -> str:
    """Return what an answer is compared by."""
    return _text(answer)[:MOST_CHARACTERS]


def conversation_text(conversation: Iterable[Said]) -> str:
    """Return what a conversation, given from its last message to its first, is compared by."""
    found: list[str] = []
    room = MOST_CHARACTERS
    for text in _texts(conversation):
        found.append(text[-room:])
        room -= len(found[-1])
        if room <= 0:
            break
    return "\n".join(reversed(found))


def _texts(conversation: Iterable[Said]) -> Iterator[str]:
    for message in conversation:
        if message.role not in ("system", "developer"):
            yield _text(message)


def _text(message: Said) -> str:
    return "\n".join(strings_in(json.loads(message.parts)))
