"""Files of policies, read: a secret in one is refused, by the shapes that redaction knows."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from governance.detect.rules.catalog import secrets
from governance.detect.rules.rule import Rule
from governance.errors import PolicyError
from trajectory.documents.source import KeyPath, SourceDocument, parse_documents, read_text
from trajectory.errors import DocumentError

_REFUSED = (
    "looks like a secret. Policies are shared and hashed: keep secrets in the environment or in a "
    "file named by a setting."
)

type _Shape = tuple[Rule, re.Pattern[str]]


@cache
def _shapes() -> tuple[_Shape, ...]:
    """Return the rules that need no context: issuers' own shapes, keys, addresses with a password."""
    return tuple(
        (rule, re.compile(rule.regex, re.IGNORECASE if rule.ignore_case else 0))
        for rule in secrets()
        if rule.score == 1.0
    )


@cache
def _named() -> tuple[_Shape, ...]:
    """Return the rules that go by a name before the value (``password=…``)."""
    return tuple(
        (rule, re.compile(rule.regex, re.IGNORECASE))
        for rule in secrets()
        if rule.name in ("assigned_secret", "quoted_secret")
    )


def read_policy(file: Path, shown: str, *, made_up: bool = False) -> list[SourceDocument]:
    """Return the documents of a YAML file.

    Args:
        file: the file to read.
        shown: how errors name it.
        made_up: whether the file holds made-up values (test cases), secrets among them.

    Raises:
        PolicyError: it cannot be read as YAML, or has a secret in it.
    """
    try:
        text = read_text(file, shown)
        documents = parse_documents(text, shown)
    except DocumentError as error:
        raise PolicyError(str(error)) from None
    if made_up:
        return documents
    for number, line_text in enumerate(text.splitlines(), start=1):
        if _in_line(line_text):
            raise PolicyError(f"{shown}:{number}: document: {_REFUSED}")
    for document in documents:
        for path, value in _texts(document.value):
            if _in_value(value):
                raise PolicyError(document.error(path, _REFUSED))
    return documents


def _texts(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))


def _in_line(text: str) -> bool:
    """Tell whether a line, comments included, holds something of a secret's shape."""
    return any(pattern.search(text) for rule, pattern in _shapes() if _may(rule, text))


def _in_value(text: str) -> bool:
    """Tell whether one value names a secret and says it."""
    return any(
        rule.check is None or rule.check(match[rule.group])
        for rule, pattern in _named()
        if _may(rule, text)
        for match in pattern.finditer(text)
    )


def _may(rule: Rule, text: str) -> bool:
    lower = text.lower()
    return any(word in lower for word in rule.needs)
