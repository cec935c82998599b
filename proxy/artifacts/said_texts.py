"""What was said in a conversation, as far as it tells what the conversation is about."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

SAID_CHARACTERS = 4000
"""So much of a conversation's end tells what it is about; a text that begins within it counts whole."""
INSTRUCTING = frozenset({"system", "developer"})
"""Roles of messages that instruct; they are no part of the conversation."""
_WORD = re.compile(r"\w+")
_AROUND = ".,;:!?()[]{}<>\"'`*-"


def words_among(text: str, vocabulary: frozenset[str]) -> frozenset[str]:
    """Return the words of a text that are in a vocabulary.

    What stands between spaces mostly is a word, at least without its punctuation. A regular expression
    for all of it takes five times as long.
    """
    words = text.split()
    odd = [each.strip(_AROUND) for each in words if not each.isalnum()]
    if odd:
        words += odd
        words += _WORD.findall(" ".join([each for each in odd if not each.isalnum()]))
    return vocabulary.intersection(words)


class SaidText:
    """One text of a conversation, upper and lower case alike."""

    __slots__ = ("_vocabulary", "_words", "text")

    def __init__(self, text: str) -> None:
        self.text = text[-SAID_CHARACTERS:].casefold()
        self._vocabulary: frozenset[str] | None = None
        self._words: frozenset[str] = frozenset()

    def words_among(self, vocabulary: frozenset[str]) -> frozenset[str]:
        """Return its words that are in a vocabulary; those of the last one asked for are known."""
        if self._vocabulary is not vocabulary:
            self._words = words_among(self.text, vocabulary)
            self._vocabulary = vocabulary
        return self._words


class SaidTexts(NamedTuple):
    """The end of a conversation."""

    texts: tuple[SaidText, ...]
    """The latest first."""
    length: int
    """In characters."""
    come: tuple[SaidText, ...]
    """Those that the call before did not have."""
    gone: tuple[SaidText, ...]
    """Those that it had, and that are no part of the end any more."""


NOTHING_SAID = SaidTexts((), 0, (), ())


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
            content = message.get("content")
            told = [content] if isinstance(content, str) else texts_of(content)[::-1]
            for text in told:
                if text and length < SAID_CHARACTERS:
                    said = SaidText(text)
                    found.append(said)
                    length += len(said.text)
    come = tuple(found)
    texts = come + before.texts
    length += before.length
    kept = len(texts)
    while kept and (rest := length - len(texts[kept - 1].text)) >= SAID_CHARACTERS:
        length, kept = rest, kept - 1
    return SaidTexts(texts[:kept], length, come, texts[kept:])
