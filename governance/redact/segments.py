"""Taking values apart into units of text to look at, and putting them together again."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from governance.detect.named_tuples import new
from governance.redact.embedded import Blob, Content, blobs, may_name, opened
from governance.redact.json_text import Literal, encoded, is_json, literals
from governance.redact.places import as_step
from governance.vocabulary import media_type
from trajectory.canonical import JsonObject, JsonValue

type Path = tuple[str, ...]
type TextFn = Callable[[str, Path, Blobs | None], str]
type NumberFn = Callable[[str, Path], int | None]

DECODED = "base64"
"""Stands at the end of the path of what was decoded."""
_MAX_NESTING = 8
_NAMED_MEDIA = {"type", "media_type", "sha256", "size_bytes"}
_REMEMBERED = 1024 * 1024
"""Characters whose insides are kept; literals take some twenty times as much memory."""
_MAY_OPEN = frozenset('{[" \t\r\n')
"""What JSON that is worth walking begins with."""


class Blobs(NamedTuple):
    """What there is to know of a text with blobs that were looked into before it is looked at."""

    moved: tuple[tuple[int, int], ...]
    """Ends of what was put in their place, and how much shorter each is than what was there."""
    was: str | None
    """The digits that the text came as, where it is nothing but digits of something else."""
    is_no_name: bool
    """Whether those digits cannot be a name as well."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """What is done to each unit of text on a walk through a value."""

    text: TextFn
    """Takes a text without further structure and its key path; returns what replaces it."""
    number: NumberFn
    """Takes a number as written; returns the one that replaces it, None when it may stay."""
    opaque: Callable[[int, Path], str | None]
    """Takes the length of something that nobody can look into; returns its replacement or None."""
    media: Callable[[str], str]
    """Takes the hash that bytes are named by; returns the one that replaces it."""
    insides: "Insides"


class _Opened(NamedTuple):
    """A blob with its digits and what they say."""

    blob: Blob
    written: str
    content: Content | None
    is_whole: bool
    """Whether it says something and there is nothing else in its text."""
    is_no_name: bool
    """Whether its digits are the whole text and cannot be a name as well."""


class Insides:
    """What is within the texts of one value, so that another walk need not parse them again."""

    def __init__(self) -> None:
        self._room = _REMEMBERED
        self._json: dict[str, list[Literal] | None] = {}
        self._blobs: dict[str, list[_Opened]] = {}

    def json(self, text: str) -> Iterable[Literal] | None:
        """Return the literals of a text, None when it is no JSON."""
        if text in self._json:
            return self._json[text]
        is_walked = is_json(text)
        if len(text) > self._room:
            return literals(text) if is_walked else None
        self._room -= len(text)
        found = self._json[text] = list(literals(text)) if is_walked else None
        return found

    def blobs(self, text: str) -> Iterable[_Opened]:
        """Return the base64 and hexadecimal digits in a text, opened."""
        known = self._blobs.get(text)
        if known is not None:
            return known
        if len(text) > self._room:
            return _opened(text)
        self._room -= len(text)
        found = self._blobs[text] = list(_opened(text))
        return found


def _opened(text: str) -> Iterator[_Opened]:
    for blob in blobs(text):
        written = blob.written(text)
        content = opened(written, is_data=blob.is_data)
        is_whole = content is not None and len(written) == len(text)
        is_no_name = is_whole and not may_name(written)
        yield new(_Opened, (blob, written, content, is_whole, is_no_name))


def rewritten(value: JsonValue, path: Path, visitor: Visitor, nesting: int = 0) -> JsonValue:
    """Return a JSON value with each unit of text replaced; types stay types."""
    if isinstance(value, str):
        return rewritten_text(value, path, visitor, nesting)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        new = visitor.number(repr(value), path)
        return value if new is None else type(value)(new)
    if isinstance(value, list):
        return [
            rewritten(item, (*path, str(place)), visitor, nesting)
            for place, item in enumerate(value)
        ]
    out: dict[str, JsonValue] = {}
    if _is_named_media(value):
        said = {"sha256": visitor.media(str(value["sha256"]))}
        return {**value, **said, "media_type": media_type(str(value["media_type"]))}
    for key, item in value.items():
        new_key = rewritten_text(key, (*path, "*"), visitor, nesting)
        while new_key in out:
            new_key += "_"
        out[new_key] = rewritten(item, (*path, as_step(key)), visitor, nesting)
    return out


def _is_named_media(value: JsonObject) -> bool:
    """Whether this is what readers of dialects write in place of bytes."""
    return (
        value.keys() == _NAMED_MEDIA
        and value["type"] == "media"
        and isinstance(value["size_bytes"], int)
        and isinstance(value["sha256"], str)
    )


def rewritten_text(text: str, path: Path, visitor: Visitor, nesting: int = 0) -> str:
    """Return a text with its units replaced: JSON and base64 in it are looked into."""
    if len(text) < 2:
        return text
    if nesting < _MAX_NESTING:
        if text[0] in _MAY_OPEN and (found := visitor.insides.json(text)) is not None:
            return _rewritten_json(text, found, path, visitor, nesting)
        if len(text) >= 12:
            text, replaced = _rewritten_blobs(text, path, visitor, nesting)
            return visitor.text(text, path, replaced)
    return visitor.text(text, path, None)


class Before:
    """Tells where places of a text were before base64 within it was replaced."""

    def __init__(self, moved: Sequence[tuple[int, int]]) -> None:
        self._at = [at for at, _ in moved]
        self._by = [0, *accumulate(by for _, by in moved)]

    def of(self, start: int, end: int) -> tuple[int, int]:
        """Return the span that became this one."""
        at, by = self._at, self._by
        return start + by[bisect_right(at, start)], end + by[bisect_right(at, end)]


def _rewritten_json(
    text: str, found: Iterable[Literal], path: Path, visitor: Visitor, nesting: int
) -> str:
    pieces: list[str] = []
    at = 0
    for start, end, keys, kind, said in found:
        where = path + keys
        old = new = text[start:end]
        if kind == "number":
            number = visitor.number(said, where)
            if number is not None:
                new = str(number)
        else:
            place = (*where[:-1], "*") if kind == "key" else where
            value = rewritten_text(said, place, visitor, nesting + 1)
            if value != said:
                new = encoded(value, like=old)
        if new != old:
            pieces += (text[at:start], new)
            at = end
    return "".join((*pieces, text[at:])) if pieces else text


def _rewritten_blobs(
    text: str, path: Path, visitor: Visitor, nesting: int
) -> tuple[str, Blobs | None]:
    inside = visitor.insides.blobs(text)
    if not inside:
        return text, None
    pieces: list[str] = []
    moved: list[tuple[int, int]] = []
    was: str | None = None
    is_no_name = False
    at = size = 0
    for found in inside:
        replaced = _looked_into(text, found, path, visitor, nesting)
        if found.is_whole:
            was, is_no_name = text, found.is_no_name
        if replaced is not None:
            blob = found.blob
            pieces += (text[at : blob.start], replaced)
            size += blob.start - at + len(replaced)
            moved.append((size, blob.end - blob.start - len(replaced)))
            at = blob.end
    if not pieces:
        return text, None if was is None else new(Blobs, ((), was, is_no_name))
    return "".join((*pieces, text[at:])), new(Blobs, (tuple(moved), was, is_no_name))


def _looked_into(
    text: str, found: _Opened, path: Path, visitor: Visitor, nesting: int
) -> str | None:
    """Return what replaces a blob, or None when it may stay."""
    blob, written, content, _, _ = found
    is_one_line = len(blob.lines) == 1
    if content is not None:
        if content.text is None:
            return visitor.opaque(len(written), path)
        inner = rewritten_text(content.text, (*path, DECODED), visitor, nesting + 1)
        if inner != content.text:
            replaced = content.closed(inner, like=written)
            return replaced if is_one_line else blob.wrapped(replaced, text)
    if is_one_line:
        return None
    # The last line may be a word that only looks like one; and each may be a blob of its own.
    shorter = [Blob(blob.lines[:-1], blob.is_data)] if content is None else []
    last = Blob(blob.lines[-1:], blob.is_data)
    parts = [*shorter, last] if shorter else [Blob((line,), blob.is_data) for line in blob.lines]
    return _joined(text, blob, parts, path, visitor, nesting)


def _joined(
    text: str, blob: Blob, parts: list[Blob], path: Path, visitor: Visitor, nesting: int
) -> str | None:
    """Return a blob with its parts looked into one by one."""
    out: list[str] = []
    at = blob.start
    for part in parts:
        digits = part.written(text)
        content = opened(digits, is_data=part.is_data)
        opened_part = _Opened(part, digits, content, is_whole=False, is_no_name=False)
        replaced = _looked_into(text, opened_part, path, visitor, nesting)
        if replaced is not None:
            out += (text[at : part.start], replaced)
            at = part.end
    return "".join((*out, text[at : blob.end])) if out else None
