"""A walk through messages and JSON values to the texts in them, and what is put in their place.

JSON within a text is walked as JSON. Base64 and hexadecimal digits are opened: where something in
them is replaced, a mark stands for all of the digits.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from governance.detect.finding import Finding
from governance.detect.questions import LONGEST_ANSWER, key_of_answer
from governance.redact.encoded_text import EncodedRun, encoded_in, is_nothing_but_digits
from governance.redact.json_text import Literal, encoded, is_json, literals
from governance.redact.named_values import (
    are_rows,
    head_row,
    heads_of,
    is_value,
    name_beside,
    named,
    placed,
)
from governance.redact.places import AnswerKey, as_step
from governance.redact.pseudonym import ENCODED_DATA
from governance.vocabulary import media_type, role
from trajectory.canonical import JsonObject, JsonValue
from trajectory.message import (
    MediaPart,
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

type Path = tuple[str, ...]
type TextFn = Callable[[str, Path, bool, Sequence[Finding]], str]
type NumberFn = Callable[[str, Path], int | str | None]

_DECODED = "base64"
"""Stands at the end of the path of what was decoded."""
BESIDE_MESSAGES = "call"
"""The role of what a call holds beside its messages."""
_QUESTION = 200
"""So many characters at the end of a message may ask for something."""
_MAX_NESTING = 8
_SHORTEST_ENCODED = 12
_NAMED_MEDIA = {"type", "media_type", "sha256", "size_bytes"}
_REMEMBERED = 1024 * 1024
"""Characters whose insides are kept; literals take some twenty times as much memory."""
_MAY_OPEN = frozenset('{[" \t\r\n')
"""What JSON that is worth walking begins with."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """What is done to each unit of text on a walk through a value."""

    text: TextFn
    """Takes a text without further structure, its key path, whether it is nothing but digits of another
    text, and the digits in it that must go; returns what replaces it."""
    number: NumberFn
    """Takes a number as written; returns the one that replaces it, None when it may stay. In JSON that is
    a text, what replaces it may be any literal."""
    media: Callable[[str], str]
    """Takes the hash that bytes are named by; returns the one that replaces it."""
    parsed: "ParsedTexts"
    drops_opaque: bool = False
    """Whether bytes that nobody can look into must go."""


class _Digits(NamedTuple):
    """The digits in a text, opened."""

    found: Sequence[EncodedRun]
    are_all: bool
    """Whether the text is nothing else, and no name."""


class ParsedTexts:
    """What is within the texts of one value, so that another walk need not parse them again."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._room = _REMEMBERED
        self._json: dict[str, list[Literal] | None] = {}
        self._digits: dict[str, _Digits] = {}

    def json(self, text: str) -> Iterable[Literal] | None:
        """Return the literals of a text, None when it is no JSON."""
        if text in self._json:
            return self._json[text]
        is_walked = is_json(text)
        if len(text) > self._room:
            return placed(literals(text)) if is_walked else None
        self._room -= len(text)
        found = self._json[text] = placed(literals(text)) if is_walked else None
        return found

    def digits(self, text: str) -> _Digits:
        """Return the base64 and hexadecimal digits in a text, opened."""
        known = self._digits.get(text)
        if known is None:
            found = encoded_in(text)
            known = _Digits(found, is_nothing_but_digits(text, found))
            if len(text) <= self._room:
                self._room -= len(text)
                self._digits[text] = known
        return known


@lru_cache(maxsize=4096)
def keys_of(path: Path) -> Path:
    """Return the part of a key path that detection depends on."""
    return tuple([key for key in path[-6:] if not key.isdigit() and key != _DECODED][-3:])


def asked_for(messages: Sequence[Message]) -> dict[int, str]:
    """Return what short messages answer, by the identity of each: what the one before asks for."""
    out: dict[int, str] = {}
    question = ""
    for message in messages:
        if message.role == BESIDE_MESSAGES:
            continue
        last = message.parts[-1] if message.parts else None
        said = last.text if isinstance(last, TextPart) else ""
        if question and len(said) <= LONGEST_ANSWER and len(message.parts) == 1:
            key = key_of_answer(question, said)
            if key is not None:
                out[id(message)] = key
        question = said[-_QUESTION:]
    return out


def rewritten_message(message: Message, visitor: Visitor, asked: str | None = None) -> Message:
    """Return a message with each unit of text replaced; ``asked`` is what it answers."""
    key = "text" if asked is None else AnswerKey(asked)
    parts = tuple(
        _rewritten_part(part, ("parts", str(place)), visitor, key)
        for place, part in enumerate(message.parts)
    )
    name = message.name
    if name is not None:
        name = rewritten_text(name, ("participant", "name"), visitor)
    return Message(role(message.role), parts, name)


def _rewritten_part(part: Part, path: Path, visitor: Visitor, key_of_text: str) -> Part:
    def text(value: str, key: str) -> str:
        return rewritten_text(value, (*path, key), visitor)

    match part:
        case TextPart():
            return TextPart(text(part.text, key_of_text))
        case ReasoningPart():
            signature = part.signature
            if signature is not None:
                signature = text(signature, "signature")
            return ReasoningPart(text(part.text, "text"), signature)
        case ToolCallPart():
            arguments = rewritten(part.arguments, (*path, "arguments"), visitor)
            call_id, name = text(part.call_id, "call_id"), text(part.name, "tool")
            return replace(part, call_id=call_id, name=name, arguments=arguments)
        case ToolResultPart():
            content = rewritten(part.content, (*path, "content"), visitor)
            return replace(part, call_id=text(part.call_id, "call_id"), content=content)
        case MediaPart():
            url = None if part.url is None else text(part.url, "url")
            sha256 = None if part.sha256 is None else visitor.media(part.sha256)
            return MediaPart(media_type(part.media_type), sha256, part.size_bytes, url)
        case OpaquePart():
            return OpaquePart(rewritten(part.value, (*path, "value"), visitor))


def rewritten(value: JsonValue, path: Path, visitor: Visitor) -> JsonValue:
    """Return a JSON value with each unit of text replaced; types stay types."""
    if isinstance(value, str):
        return rewritten_text(value, path, visitor)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        new = visitor.number(repr(value), path)
        return value if new is None else type(value)(new)
    if isinstance(value, list):
        return _rewritten_list(value, path, visitor, head_row(value))
    if _is_named_media(value):
        said = {"sha256": visitor.media(str(value["sha256"]))}
        return {**value, **said, "media_type": media_type(str(value["media_type"]))}
    out: dict[str, JsonValue] = {}
    name, heads = name_beside(value), heads_of(value)
    for key, item in value.items():
        new_key = rewritten_text(key, (*path, "*"), visitor)
        while new_key in out:
            new_key += "_"
        where = (*path, as_step(key))
        if name is not None and is_value(key) and not isinstance(item, list | dict):
            where += named(name, item)
        if heads and isinstance(item, list) and are_rows(key):
            out[new_key] = _rewritten_list(item, where, visitor, heads)
        else:
            out[new_key] = rewritten(item, where, visitor)
    return out


def _rewritten_list(
    value: Sequence[JsonValue], path: Path, visitor: Visitor, heads: Sequence[str]
) -> JsonValue:
    """Return a list with each unit of text replaced; the cells of its rows stand under ``heads``."""
    out: list[JsonValue] = []
    for place, item in enumerate(value):
        where = (*path, str(place))
        if heads and isinstance(item, list):
            out.append(_rewritten_row(item, where, visitor, heads))
        else:
            out.append(rewritten(item, where, visitor))
    return out


def _rewritten_row(
    row: Sequence[JsonValue], path: Path, visitor: Visitor, heads: Sequence[str]
) -> JsonValue:
    out: list[JsonValue] = []
    for place, cell in enumerate(row):
        where = (*path, str(place))
        if place < len(heads) and cell != heads[place] and not isinstance(cell, list | dict):
            where += named(heads[place], cell)
        out.append(rewritten(cell, where, visitor))
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
    """Return a text with its units replaced: JSON and digits in it are looked into."""
    if len(text) < 2:
        return text
    if nesting >= _MAX_NESTING:
        return visitor.text(text, path, False, ())
    if text[0] in _MAY_OPEN and (found := visitor.parsed.json(text)) is not None:
        return _rewritten_json(text, found, path, visitor, nesting)
    if len(text) < _SHORTEST_ENCODED:
        return visitor.text(text, path, False, ())
    digits = visitor.parsed.digits(text)
    gone = [one for blob in digits.found for one in _must_go(blob, path, visitor, nesting)]
    return visitor.text(text, path, digits.are_all, gone)


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


def _must_go(blob: EncodedRun, path: Path, visitor: Visitor, nesting: int) -> list[Finding]:
    """Return the digits of a blob that must go, for what they say or since nobody can tell."""
    if blob.is_opaque:
        what = "OPAQUE_DATA" if visitor.drops_opaque else None
    elif blob.text is None:
        what = None
    else:
        inner = rewritten_text(blob.text, (*path, _DECODED), visitor, nesting + 1)
        what = ENCODED_DATA if inner != blob.text else None
    if what is not None:
        return [Finding(what, blob.start, blob.end, 1.0, "walker")]
    return [one for part in blob.parts for one in _must_go(part, path, visitor, nesting)]
