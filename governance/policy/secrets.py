"""Secrets that do not belong into policy, by the shapes that redaction knows."""

import re
from functools import cache

from governance.detect.rules.rule import Rule
from governance.detect.rules.secrets import SECRETS

type _Shape = tuple[Rule, re.Pattern[str]]


@cache
def _shapes() -> tuple[_Shape, ...]:
    """Return the rules that need no context: issuers' own shapes, keys, addresses with a password."""
    return tuple(
        (rule, re.compile(rule.regex, re.IGNORECASE if rule.ignore_case else 0))
        for rule in SECRETS
        if rule.score == 1.0
    )


@cache
def _named() -> tuple[_Shape, ...]:
    """Return the rules that go by a name before the value (``password=…``)."""
    return tuple(
        (rule, re.compile(rule.regex, re.IGNORECASE))
        for rule in SECRETS
        if rule.name in ("assigned_secret", "quoted_secret")
    )


def in_line(text: str) -> bool:
    """Tell whether a line, comments included, holds something of a secret's shape."""
    return any(pattern.search(text) for rule, pattern in _shapes() if _may(rule, text))


def in_value(text: str) -> bool:
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
