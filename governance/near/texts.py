"""The text by which a conversation is compared: what was said last in it, system prompts left out."""

import json
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

MOST_CHARACTERS = 2_000
"""A conversation gives its last ones, an answer its first ones: they tell what a step is about. The index of a
million steps stays a few gigabytes."""
_PIECE = 512
"""What is cut off has a multiple of so many characters, so that a word more at the end cuts alike."""
ALGORITHM = "last-2000-after-hash-1"
"""What is kept beside texts that were compared; change it with what they are made of."""

_NO_TEXT = ("type", "role", "id", "call_id", "media_type", "signature")


class MessageText(NamedTuple):
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


def answer_text(answer: MessageText) -> str:
    """Return what an answer is compared by."""
    return _text(answer)[:MOST_CHARACTERS]


def conversation_text(conversation: Iterable[MessageText]) -> str:
    """Return what a conversation, given from its last message to its first, is compared by.

    A hash of all earlier characters stands before its last ones. So two long ones that merely end alike do not
    pass for one.
    """
    found: list[str] = []
    room = MOST_CHARACTERS
    before = blake2b(digest_size=8)
    cut = False
    for message in conversation:
        if message.role in ("system", "developer"):
            continue
        if room <= 0:
            before.update(message.parts.encode("utf-8", "surrogatepass"))
            cut = True
            continue
        text = _text(message)
        away = max(0, len(text) - room) // _PIECE * _PIECE
        if away:
            before.update(text[:away].encode("utf-8", "surrogatepass"))
            cut = True
        found.append(text[away:])
        room -= len(found[-1])
    found += [before.hexdigest()] if cut else []
    return "\n".join(reversed(found))


def _text(message: MessageText) -> str:
    return "\n".join(strings_in(json.loads(message.parts)))
