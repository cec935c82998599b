"""Taking values apart into units of text to look at, and putting them together again."""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate

from governance.redact.blobs import Blob, Content, blobs, opened
from governance.redact.json_text import Literal, encoded, is_json, literals
from trajectory.canonical import JsonValue

type Path = tuple[str, ...]
type Moved = tuple[tuple[int, int], ...]
"""Where a text that was changed before it is looked at differs: places in it, and how far they moved."""
type TextFn = Callable[[str, Path, Moved], str]
type NumberFn = Callable[[str, Path], int | None]

DECODED = "base64"
"""Stands at the end of the path of what was decoded."""
_MAX_NESTING = 8
_REMEMBERED = 1024 * 1024
"""Characters of JSON whose literals are kept; they take some twenty times as much memory."""
_MAY_OPEN = frozenset('{[" \t\r\n')
"""What JSON that is worth walking begins with."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """What is done to each unit of text on a walk through a value."""

    text: TextFn
    """Takes a text without further structure and its key path; returns what replaces it."""
    number: NumberFn
    """Takes a number as written; returns the one that replaces it, None when it may stay."""
    opaque: Callable[[int, Path], str | None]
    """Takes the length of something that nobody can look into; returns its replacement or None."""
    json: Callable[[str], Iterable[Literal] | None]
    """Takes a text; returns its literals when it is JSON."""


class JsonTexts:
    """What is JSON among the texts of one value, so that a second walk need not parse it again."""

    def __init__(self) -> None:
        self._room = _REMEMBERED
        self._known: dict[str, list[Literal] | None] = {}

    def __call__(self, text: str) -> Iterable[Literal] | None:
        """Return the literals of a text, None when it is no JSON."""
        if text in self._known:
            return self._known[text]
        is_walked = is_json(text)
        if len(text) > self._room:
            return literals(text) if is_walked else None
        self._room -= len(text)
        found = self._known[text] = list(literals(text)) if is_walked else None
        return found


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
    for key, item in value.items():
        new_key = rewritten_text(key, (*path, "*"), visitor, nesting) if len(key) > 3 else key
        while new_key in out:
            new_key += "_"
        out[new_key] = rewritten(item, (*path, key if new_key == key else "*"), visitor, nesting)
    return out


def rewritten_text(text: str, path: Path, visitor: Visitor, nesting: int = 0) -> str:
    """Return a text with its units replaced: JSON and base64 in it are looked into."""
    if len(text) < 2:
        return text
    if nesting < _MAX_NESTING:
        if text[0] in _MAY_OPEN and (found := visitor.json(text)) is not None:
            return _rewritten_json(text, found, path, visitor, nesting)
        if len(text) >= 12:
            text, moved = _rewritten_blobs(text, path, visitor, nesting)
            return visitor.text(text, path, moved)
    return visitor.text(text, path, ())


class Before:
    """Tells where places of a text were before base64 within it was replaced."""

    def __init__(self, moved: Moved) -> None:
        self._at = [at for at, _ in moved]
        self._by = [0, *accumulate(by for _, by in moved)]

    def of(self, start: int, end: int) -> tuple[int, int]:
        """Return the span that became this one."""
        if not self._at:
            return start, end
        at, by = self._at, self._by
        return start + by[bisect_right(at, start)], end + by[bisect_right(at, end)]


def _rewritten_json(
    text: str, found: Iterable[Literal], path: Path, visitor: Visitor, nesting: int
) -> str:
    pieces: list[str] = []
    at = 0
    for literal in found:
        where = (*path, *literal.path)
        old = text[literal.start : literal.end]
        if literal.kind == "number":
            number = visitor.number(literal.text, where)
            new = old if number is None else str(number)
        else:
            place = (*where[:-1], "*") if literal.kind == "key" else where
            value = rewritten_text(literal.text, place, visitor, nesting + 1)
            new = old if value == literal.text else encoded(value, like=old)
        if new != old:
            pieces += (text[at : literal.start], new)
            at = literal.end
    return "".join((*pieces, text[at:])) if pieces else text


def _rewritten_blobs(text: str, path: Path, visitor: Visitor, nesting: int) -> tuple[str, Moved]:
    pieces: list[str] = []
    moved: list[tuple[int, int]] = []
    at = size = 0
    for blob in blobs(text):
        replaced = _looked_into(text, blob, path, visitor, nesting)
        if replaced is not None:
            pieces += (text[at : blob.start], replaced)
            size += blob.start - at + len(replaced)
            moved.append((size, blob.end - blob.start - len(replaced)))
            at = blob.end
    return ("".join((*pieces, text[at:])), tuple(moved)) if pieces else (text, ())


def _looked_into(text: str, blob: Blob, path: Path, visitor: Visitor, nesting: int) -> str | None:
    """Return what replaces a blob, or None when it may stay."""
    whole = blob.written(text)
    content = opened(whole, is_data=blob.is_data)
    if len(blob.lines) == 1:
        return _again(content, whole, path, visitor, nesting)
    if content is not None:
        replaced = _again(content, whole, path, visitor, nesting)
        if replaced is not None:
            return replaced if content.text is None else blob.wrapped(replaced, text)
        if content.text is None:
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
        replaced = _looked_into(text, part, path, visitor, nesting)
        if replaced is not None:
            out += (text[at : part.start], replaced)
            at = part.end
    return "".join((*out, text[at : blob.end])) if out else None


def _again(
    content: Content | None, written: str, path: Path, visitor: Visitor, nesting: int
) -> str | None:
    """Return digits that say what is left of a content, or None when all may stay."""
    if content is None:
        return None
    if content.text is None:
        return visitor.opaque(len(written), path)
    inner = rewritten_text(content.text, (*path, DECODED), visitor, nesting + 1)
    return None if inner == content.text else content.closed(inner, like=written)
