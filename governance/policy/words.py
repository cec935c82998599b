"""Closed vocabularies that a policy may name, and what is said of a word that is in none."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase, translate
from functools import cache

from trajectory.documents.problems import meant

_CLASS = re.compile(r"\[!?(?:\][^\]]*|[^\]]+)\]")
"""A class of characters, as ``fnmatch`` reads it."""
_NEVER = "(?!)"
"""What ``fnmatch`` makes of a class without a character."""
_PATTERN = re.compile(r"\.[*+]|\\[dwsbDWSB.]|\]\+|\]\*|^\^|^\*")
"""What regular expressions and globs have, and next to no value."""

KINDS = ("model", "tool")
"""What becomes a step."""
ROLES = ("agent", "auxiliary", "discarded", "compaction", "queued", "shadow")
SPLITS = ("train", "holdout")
CAPTURE_LEVELS = ("text", "logprobs", "tokens")
TOKEN_CODES = (
    "invalid_token_id",
    "invalid_logprob",
    "positive_logprob",
    "no_prompt_ids",
    "no_logprobs",
    "logprob_misalign",
    "length_mismatch",
    "invalid_loss_mask",
    "trainable_prompt",
)
"""Why OpenEnv refuses tokens."""
KEY_SOURCES = (
    "header:x-headrace-session",
    "url",
    "traceparent",
    "baggage",
    "import",
    "previous_response_id",
    "tool_call",
    "prefix",
    "none",
    "shadow",
)
"""What told a trajectory, beside ``client:`` and the header or field that did."""


@cache
def dialects() -> tuple[str, ...]:
    """Return what ``dialect`` can be."""
    from trajectory.dialects.http_tools import HttpTools
    from trajectory.dialects.registry import DIALECTS
    from trajectory.formats.catalog import FORMATS
    from trajectory.telemetry import genai, openinference

    wire = (*(one.name for one in DIALECTS), HttpTools.name, "opaque")
    traces = (genai.CONVENTION, openinference.CONVENTION)
    return (*wire, *traces, *(f"import.{name}" for name in FORMATS))


def outcomes() -> tuple[str, ...]:
    """Return what ``outcome`` can be."""
    from trajectory.exchange import ExchangeOutcome

    return tuple(ExchangeOutcome)


def unknown(what: str, word: object, valid: Iterable[str]) -> str:
    """Return what is wrong with a word that is in no vocabulary, and which one was meant."""
    known = tuple(valid)
    return f"unknown {what}. Valid: {', '.join(known)}{meant(word, known)}"


def check_pattern(what: str, pattern: str, valid: Iterable[str]) -> None:
    """Refuse a pattern that no word of a vocabulary fits.

    Raises:
        ValueError: it can never fit.
    """
    known = tuple(valid)
    if not any(fnmatchcase(word, pattern) for word in known):
        raise ValueError(unknown(what, pattern, known))


def check_glob(pattern: str) -> str:
    """Refuse a pattern whose brackets cannot be meant.

    Raises:
        ValueError: it fits nothing that has a name.
    """
    if _NEVER in translate(pattern):
        raise ValueError("has a range that runs backwards, so that it never fits; turn it round")
    rest = _CLASS.sub("", pattern)
    if "[" in rest:
        raise ValueError("has a [ without its ], which no name has; write it out, or close it")
    if not rest and pattern:
        word = pattern.strip("[]!")
        raise ValueError(
            f"fits names of one character only. Did you mean {word}, or a list without quotes?"
        )
    return pattern


def check_exact(value: str) -> str:
    """Refuse a pattern where an exact value is meant.

    Raises:
        ValueError: nothing in a text equals it.
    """
    if not any(map(str.isalnum, value)) or _PATTERN.search(value):
        raise ValueError(
            f"takes exact values, and {value!r} is a pattern: nothing equals it. Write each value out"
        )
    return value


def check_plain(text: str) -> str:
    """Refuse what can never equal a name: nothing, or blanks before or after it.

    Raises:
        ValueError: it can never fit.
    """
    if not text.strip():
        raise ValueError("is empty")
    if text != text.strip():
        raise ValueError("has blanks before or after it, so that it never fits; take them away")
    if not text.isprintable():
        raise ValueError("has a character that cannot be printed, so that it never fits")
    return text
