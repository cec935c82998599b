"""What was said in a conversation, as far as it tells what the conversation is about."""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

SAID_CHARACTERS = 4000
"""So much of a conversation's end tells what it is about; a text that begins within it counts whole."""
INSTRUCTING = frozenset({"system", "developer"})
"""Roles of messages that instruct; they are no part of the conversation."""
_WORD = re.compile(r"\w+")


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, in whose case they stand.

    What stands between spaces mostly is a word. Looking only into the rest takes a third of the time.
    """
    found = frozenset(text.split())
    others = [each for each in found if not each.isalnum()]
    return found.difference(others).union(_WORD.findall(" ".join(others))) if others else found


class SaidText:
    """One text of a conversation, upper and lower case alike."""

    def __init__(self, text: str) -> None:
        self.text = text[-SAID_CHARACTERS:].casefold()

    @cached_property
    def words(self) -> frozenset[str]:
        """Its words."""
        return words_of(self.text)


class SaidTexts(NamedTuple):
    """The end of a conversation."""

    texts: tuple[SaidText, ...]
    """The latest first."""
    length: int
    """In characters."""


NOTHING_SAID = SaidTexts((), 0)


def texts_of(content: Any) -> list[str]:
    """Return the texts of a content: it is one itself, or has parts."""
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    found = [part.get("text") for part in parts if isinstance(part, dict)]
    return [text for text in found if isinstance(text, str)]


def said_in(messages: Sequence[Any], before: SaidTexts = NOTHING_SAID) -> SaidTexts:
    """Return the last texts of a conversation, without instructions."""
    found: list[SaidText] = []
    length = 0
    for message in reversed(messages):
        if length >= SAID_CHARACTERS:
            break
        if isinstance(message, dict) and message.get("role") not in INSTRUCTING:
            for text in reversed(texts_of(message.get("content"))):
                if text and length < SAID_CHARACTERS:
                    found.append(SaidText(text))
                    length += len(found[-1].text)
    texts = (*found, *before.texts)
    length += before.length
    kept = len(texts)
    while kept and (rest := length - len(texts[kept - 1].text)) >= SAID_CHARACTERS:
        length, kept = rest, kept - 1
    return SaidTexts(texts[:kept], length)
