"""The second pass: patterns of its own over what redaction gave, since one guard may be blind.

The patterns are plain and linear, and know nothing of the detectors they check on but whose mailboxes are nobody's. They do not
look for names; they look for what has a shape and must never remain.
"""

import re
from collections.abc import Callable, Collection, Iterable

from governance.detect.rules.checks import NOBODYS_BOXES
from governance.policy.quality import Leftover

_PATTERNS: dict[Leftover, re.Pattern[str]] = {
    Leftover.EMAIL_ADDRESS: re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}"),
    Leftover.CREDIT_CARD: re.compile(r"[2-6](?<![\w.-].)(?:[ -]?[0-9]){12,18}(?![\w-])"),
    Leftover.JWT: re.compile(r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"),
    Leftover.PRIVATE_KEY: re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY"),
    Leftover.CONNECTION_STRING: re.compile(r"\b[a-z][a-z0-9+.-]{1,30}://[^\s:/@\"'\\<]{1,100}:[^\s:/@\"'\\<]{1,100}@"),
    Leftover.API_KEY: re.compile(
        r"\b(?:sk-[A-Za-z0-9_-]{16,}|(?:AKIA|ASIA)[0-9A-Z]{16}\b|gh[pousr]_[A-Za-z0-9]{30,}"
        r"|github_pat_\w{20,}|xox[abprs]-[\w-]{10,}|AIza[\w-]{30,}|hf_[A-Za-z0-9]{30,}"
        r"|glpat-[\w-]{20,}|[sr]k_live_[A-Za-z0-9]{16,}|hr_[0-9a-f]{6,}_[\w-]{16,})"
    ),
}  # fmt: skip

_BEFORE_UNDERSCORE = ("ghp", "gho", "ghu", "ghs", "ghr", "pat", "hf", "live", "hr")
_BEFORE_DASH = ("sk", "glpat", "xoxa", "xoxb", "xoxp", "xoxr", "xoxs")
_DIGITS = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x78 for byte in range(256))
_CARD = b"0" * 13


def _has_long_number(text: str) -> bool:
    """Return whether so many digits stand in a row, blanks and dashes aside."""
    return _CARD in text.encode("utf-8", "replace").translate(_DIGITS, b" -")


def _has_key_mark(text: str) -> bool:
    if "_" in text:
        for piece in text.split("_")[:-1]:
            if piece.endswith(_BEFORE_UNDERSCORE):
                return True
    if "-" in text:
        for piece in text.split("-")[:-1]:
            if piece.endswith(_BEFORE_DASH):
                return True
    return "A" in text and ("AKIA" in text or "ASIA" in text or "AIza" in text)


_POSSIBLE: dict[Leftover, Callable[[str], bool]] = {
    Leftover.EMAIL_ADDRESS: lambda text: "@" in text,
    Leftover.CREDIT_CARD: _has_long_number,
    Leftover.JWT: lambda text: "J" in text and "eyJ" in text,
    Leftover.PRIVATE_KEY: lambda text: "-" in text and "-----BEGIN" in text,
    Leftover.CONNECTION_STRING: lambda text: "/" in text and "@" in text and "://" in text,
    Leftover.API_KEY: _has_key_mark,
}
"""What a text must have to match: single characters are looked for at a hundredth of a pattern's cost."""


class LeftoverCheck:
    """Counts what redaction should have found, in text that it gave."""

    def __init__(self, entities: Collection[Leftover], allow: Iterable[str] = ()) -> None:
        """Look for ``entities``; values in ``allow`` were left on purpose."""
        self._patterns = [(entity, _PATTERNS[entity], _POSSIBLE[entity]) for entity in entities]
        self._allow = frozenset(value.casefold() for value in allow)
        self._counts: dict[str, int] = {}

    def count(self, text: str) -> int:
        """Return how many values are left in a text."""
        left = 0
        for entity, pattern, possible in self._patterns:
            if possible(text):
                left += sum(self._is_left(entity, one.group()) for one in pattern.finditer(text))
        return left

    def count_once(self, name: str, text: str) -> int:
        """Return the count for a text that never changes under its name (an id of content)."""
        if name not in self._counts:
            if len(self._counts) > 50_000:
                self._counts.clear()
            self._counts[name] = self.count(text)
        return self._counts[name]

    def _is_left(self, entity: Leftover, value: str) -> bool:
        if value.casefold() in self._allow:
            return False
        if entity is Leftover.CREDIT_CARD:
            return _is_card(value)
        if entity is Leftover.EMAIL_ADDRESS:
            nobodys = value.partition("@")[0].lower() in NOBODYS_BOXES
            return not (nobodys or value.rstrip(".").endswith((".invalid", ".example")))
        return True


def _is_card(value: str) -> bool:
    digits = [int(char) for char in value if char.isdigit()]
    if not 13 <= len(digits) <= 19 or len(set(digits)) == 1:
        return False
    total = 0
    for index, digit in enumerate(reversed(digits)):
        doubled = digit * 2 if index % 2 else digit
        total += doubled - 9 if doubled > 9 else doubled
    return total % 10 == 0
