"""Taking values apart into units of text to look at, and putting them together again."""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass

from governance.redact.json_text import encoded, is_json, literals
from trajectory.canonical import JsonValue

type Path = tuple[str, ...]
type Moved = tuple[tuple[int, int], ...]
"""Where a text that was changed before it is looked at differs: places in it, and how far they moved."""
type TextFn = Callable[[str, Path, Moved], str]
type NumberFn = Callable[[str, Path], int | None]

_BASE64 = re.compile(r"(data:[\w.+\-/;=]{0,100};base64,)?([A-Za-z0-9+/_\-]{12,}={0,2})")
_MIXED = re.compile(r"(?=.*[a-z])(?=.*[A-Z0-9])")
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F\-]+\Z")
DECODED = "base64"
"""Stands at the end of the path of what was decoded."""
_WITHOUT_BREAKS = dict.fromkeys(map(ord, "\n\r\t"))
_OPAQUE_FROM = 512
_MAX_NESTING = 8


@dataclass(frozen=True, slots=True)
class Visitor:
    """What is done to each unit of text on a walk through a value."""

    text: TextFn
    """Takes a text without further structure and its key path; returns what replaces it."""
    number: NumberFn
    """Takes a number as written; returns the one that replaces it, None when it may stay."""
    opaque: Callable[[int, Path], str | None]
    """Takes the length of something that nobody can look into; returns its replacement or None."""


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
        if is_json(text):
            return _rewritten_json(text, path, visitor, nesting)
        if len(text) >= 12:
            text, moved = _rewritten_base64(text, path, visitor, nesting)
            return visitor.text(text, path, moved)
    return visitor.text(text, path, ())


def as_it_came(place: int, moved: Moved) -> int:
    """Return where a place of a text was before base64 within it was replaced."""
    return place + sum(by for at, by in moved if at <= place)


def _rewritten_json(text: str, path: Path, visitor: Visitor, nesting: int) -> str:
    pieces: list[str] = []
    at = 0
    for literal in literals(text):
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


def _rewritten_base64(text: str, path: Path, visitor: Visitor, nesting: int) -> tuple[str, Moved]:
    pieces: list[str] = []
    moved: list[tuple[int, int]] = []
    at = size = 0
    for match in _BASE64.finditer(text):
        blob = match.group(2)
        if _HEX.match(blob) or not _MIXED.match(blob):
            continue
        replaced = _looked_into(blob, bool(match.group(1)), path, visitor, nesting)
        if replaced is not None:
            pieces += (text[at : match.start(2)], replaced)
            size += match.start(2) - at + len(replaced)
            moved.append((size, len(blob) - len(replaced)))
            at = match.end(2)
    return ("".join((*pieces, text[at:])), tuple(moved)) if pieces else (text, ())


def _looked_into(
    blob: str, is_data: bool, path: Path, visitor: Visitor, nesting: int
) -> str | None:
    """Return what replaces one run of base64, or None when it may stay."""
    plain = blob.rstrip("=").replace("-", "+").replace("_", "/")
    if len(plain) % 4 == 1:
        plain = plain[:-1]
    try:
        data = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    text = _as_text(data)
    if text is None:
        if is_data or len(blob) >= _OPAQUE_FROM:
            return visitor.opaque(len(blob), path)
        return None
    inner = rewritten_text(text, (*path, DECODED), visitor, nesting + 1)
    if inner == text:
        return None
    again = base64.b64encode(inner.encode("utf-8", "surrogatepass")).decode("ascii")
    if "-" in blob or "_" in blob:
        again = again.replace("+", "-").replace("/", "_")
    return again if blob.endswith("=") else again.rstrip("=")


def _as_text(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if len(text) >= 6 and text.translate(_WITHOUT_BREAKS).isprintable() else None
