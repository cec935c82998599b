"""JSON inside strings: its string and number literals with key paths, so that only they are spliced.

White space, number formats and the order of keys stay byte for byte as they came.
"""

import json
import re
from collections.abc import Iterator
from json.encoder import encode_basestring, encode_basestring_ascii

from governance.redact.places import as_step

_TOKEN = re.compile(
    r'(?:(,)[ \t\r\n]*)?("[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"|-?[0-9][0-9.eE+\-]*|[{}\[\]:]|true|false|null)',
    re.DOTALL,
)
"""A token, and the comma before it."""


type Literal = tuple[int, int, tuple[str, ...], str, str]
"""One literal of a JSON text: start, end, its key path, string, number or key, and the decoded string or
the number as written."""


def _refuse(_: str) -> float:
    raise ValueError("not JSON")


def is_json(text: str) -> bool:
    """Whether a text is a JSON object, list or string that is worth walking as JSON."""
    stripped = text.lstrip(" \t\r\n")
    if stripped[:1] not in ("{", "[", '"') or text.rstrip(" \t\r\n")[-1:] not in ("}", "]", '"'):
        return False
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def literals(text: str) -> Iterator[Literal]:
    """Yield the string and number literals of a valid JSON text with their key paths."""
    stack: list[tuple[str, int]] = []
    keys: list[str] = []
    expects_key = False
    for match in _TOKEN.finditer(text):
        comma, token = match.groups()
        if comma:
            kind, count = stack[-1]
            stack[-1] = (kind, count + 1)
            if kind == "[":
                keys[-1] = str(count + 1)
            expects_key = kind == "{"
        head = token[0]
        if head == '"':
            decoded = json.loads(token) if "\\" in token else token[1:-1]
            if expects_key:
                yield *match.span(2), tuple(keys), "key", decoded
                keys[-1] = as_step(decoded)
                expects_key = False
            else:
                yield *match.span(2), tuple(keys), "string", decoded
        elif head in "{[":
            stack.append((head, 0))
            keys.append("" if head == "{" else "0")
            expects_key = head == "{"
        elif head in "}]":
            stack.pop()
            keys.pop()
            expects_key = False
        elif head in "-0123456789":
            yield *match.span(2), tuple(keys), "number", token


def encoded(value: str, *, like: str) -> str:
    """Return a JSON string literal, escaped like the literal that it replaces."""
    if like.isascii() or any("\ud800" <= one <= "\udfff" for one in value):
        return encode_basestring_ascii(value)  # half of a pair can only be written as an escape
    return encode_basestring(value)
