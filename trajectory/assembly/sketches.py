"""Small keyed summaries of texts by which a quotation is recognised.

A *sketch* is made of all runs of eight words: the four with the smallest hash. A text that quotes
another one in full holds all of its sketch, wherever the quotation stands. A name for the whole
text stands beside the runs: it tells texts apart that differ in one word.
"""

import re
import zlib
from collections.abc import Iterable, Sequence

from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.canonical import JsonValue
from trajectory.message import Message, TextPart

_RUN = 8
_SKETCH = 4
_WORDS_LIMIT = 4000
_SHORTEST = 12
_EXTENTS = 6
_QUOTED_LIMIT = 200_000
_IDS_LIMIT = 256
_NAMES_LIMIT = 1024
_NAME = 8
_OPENINGS = 6
_ID = re.compile(r"[A-Za-z][A-Za-z0-9]*[_-][A-Za-z0-9_-]{11,64}")
_SUMMARY = re.compile(r"<summary>(.*)</summary>", re.DOTALL)
_WHOLE = "\0whole\0"


def sketch(maker: Fingerprinter, scope: str, text: str) -> list[str]:
    """Return the sketch of a text; empty when it is too short to tell anything."""
    return [_name(maker, scope, run) for run in _smallest(set(_runs(text)), _SKETCH)]


def openings(
    maker: Fingerprinter, scope: str, texts: Sequence[str], *, has_tools: bool
) -> list[list[str]]:
    """Return name and sketch of each stretch of the opening words that others may quote.

    A call without tools may itself quote an opening: what it may quote is kept too, so that the
    agent's call is recognised when it comes later.
    """
    whole = "\n".join(texts)
    found = [
        whole,
        *(texts[::-1] if len(texts) > 1 else ()),
        *(() if has_tools else extents(whole)),
    ]
    return [
        [whole_name(maker, scope, text), *made]
        for text in list(dict.fromkeys(found))[:_OPENINGS]
        if (made := sketch(maker, scope, text))
    ]


def answer_sketch(maker: Fingerprinter, scope: str, text: str) -> list[str]:
    """Return the sketch of an answer; of a summary behind an analysis, only the summary comes back."""
    summary = _SUMMARY.search(text)
    return sketch(maker, scope, summary[1] if summary else text)


def whole_name(maker: Fingerprinter, scope: str, text: str) -> str:
    """Return the name of a whole text, white space aside."""
    return _name(maker, scope, _WHOLE + " ".join(text.split(None, _WORDS_LIMIT)))


def text_names(maker: Fingerprinter, scope: str, texts: Iterable[str]) -> set[str]:
    """Return the names of what these texts hold: runs, short lines, and extents as a whole.

    Of long texts the runs and lines with the smallest checksums are enough: sketches are made of
    the smallest too.
    """
    found: set[str] = set()
    whole: set[str] = set()
    for text in texts:
        found.update(_runs(text))
        for line in text.splitlines():
            if len(line.split()) <= _RUN:
                found.update(_runs(line))
        whole.update(_WHOLE + " ".join(part.split(None, _WORDS_LIMIT)) for part in extents(text))
    chosen = found if len(found) <= _NAMES_LIMIT else set(_smallest(found, _NAMES_LIMIT))
    return {_name(maker, scope, run) for run in chosen | whole}


def extents(text: str) -> list[str]:
    """Return the stretches of a text that may be a quotation: what orders and marks leave over.

    The whole, what follows the first line, the first empty line or the first colon, each also
    without its last line.
    """
    starts = [text, *(text.partition(mark)[2] for mark in ("\n", "\n\n", ": "))]
    found = [*starts, *(start.rpartition("\n")[0] for start in starts)]
    sound = (part.strip() for part in found)
    return list(dict.fromkeys(part for part in sound if len(part) >= _SHORTEST))[:_EXTENTS]


def quoted_ids(maker: Fingerprinter, scope: str, context: Sequence[Message]) -> list[str]:
    """Return the names of all that looks like the id of a tool call in the words of a context."""
    found: dict[str, None] = {}
    for message in context:
        found.update(dict.fromkeys(_ID.findall(message.text()[:_QUOTED_LIMIT])))
    return [maker.short("call", scope, name) for name in list(found)[-_IDS_LIMIT:]]


def opening_texts(context: Sequence[Message]) -> list[str]:
    """Return the user's texts before the model's first turn."""
    texts: list[str] = []
    for message in context:
        if message.role == "assistant":
            break
        if message.role == "user":
            texts.extend(part.text for part in message.parts if isinstance(part, TextPart))
    return texts


def argument_text(value: JsonValue) -> str:
    """Return the longest string in a tool call's arguments: a sub-agent's orders, if any."""
    longest = ""
    level: list[JsonValue] = [value]
    while level:
        item = level.pop()
        if isinstance(item, str) and len(item) > len(longest):
            longest = item
        elif isinstance(item, dict):
            level.extend(item.values())
        elif isinstance(item, list):
            level.extend(item)
    return longest


def _name(maker: Fingerprinter, scope: str, text: str) -> str:
    return maker.short("echo", scope, text)[:_NAME]


def _smallest(runs: set[str], count: int) -> list[str]:
    """Return the runs with the smallest checksums."""
    checked = sorted((zlib.crc32(run.encode("utf-8", "replace")), run) for run in runs)
    return [run for _, run in checked[:count]]


def _runs(text: str) -> list[str]:
    words = text.split(None, _WORDS_LIMIT)[:_WORDS_LIMIT]
    if len(words) > _RUN:
        return [" ".join(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1)]
    whole = " ".join(words)
    return [whole] if len(whole) >= _SHORTEST else []
