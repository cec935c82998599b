"""All pattern rules of our own: those of the YAML files beside this module."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from governance.detect.normalized_text import in_latin_1
from governance.detect.rules.hooks import AROUND, HOOKS
from governance.detect.rules.registry import SHIPPED, read_registry
from governance.detect.rules.rule import Rule
from governance.detect.rules.spans import SPANS
from trajectory.errors import ConfigurationError
from trajectory.files import read_file

_FILES = (
    "secrets", "passwords", "accounts", "identifiers", "records", "addresses", "residence", "unique", "told_names",
)  # fmt: skip
_FRAGMENT = re.compile(r"<<(\w+)>>")
_SAME = (
    "group", "fewest_digits", "digits_in_a_row", "shortest", "digits", "spaced", "not_in_queries", "wide",
    "ignore_case", "left", "right", "with_entity",
)  # fmt: skip
_WORDS = ("needs", "context", "against")
_KEYS = frozenset({"name", "supported_entity", "patterns", "validate", "around", *_SAME, *_WORDS})

type _Fragments = Mapping[str, str | Sequence[str]]


def rules_of(path: Path) -> tuple[Rule, ...]:
    """Return the rules of a YAML file.

    Raises:
        ConfigurationError: the file is no registry of recognisers, or names an unknown key, check or fragment.
    """
    try:
        document = read_registry(path)
        fragments, defaults = document.get("fragments") or {}, document.get("defaults") or {}
        entries = [{**defaults, **entry} for entry in document["recognizers"]]
        return tuple(rule for entry in entries for rule in _rules(path, entry, fragments))
    except (
        OSError,
        yaml.YAMLError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        raise ConfigurationError(
            f'{path}: not a registry of recognisers ({type(error).__name__}: {error}). See "A rule of '
            'your own" in policies/README.md for its keys.'
        ) from error


def has_checks(path: Path) -> bool:
    """Whether a recogniser of a policy's file asks for a named check: then its rules are ours to read."""
    try:
        return b"validate:" in read_file(path)
    except OSError:
        return False


def _rules(path: Path, entry: dict[str, Any], fragments: _Fragments) -> list[Rule]:
    name = entry["name"]
    if unknown := sorted(entry.keys() - _KEYS):
        raise ConfigurationError(
            f"{path}: {name}: unknown key {unknown[0]!r}. Valid: {', '.join(sorted(_KEYS))}."
        )
    checks = {"validate": {*HOOKS, *SPANS}, "around": set(AROUND)}
    for key, valid in checks.items():
        if (check := entry.get(key)) is not None and check not in valid:
            raise ConfigurationError(
                f"{path}: {name}: unknown check {check!r}. Valid: {', '.join(sorted(valid))}."
            )
    validate, wide = entry.get("validate") or "", entry.get("wide", False)
    given = {key: entry[key] for key in _SAME if key in entry}
    given |= {key: tuple(map(str, entry[key])) for key in _WORDS if key in entry}
    given |= {key: _filled(given[key], fragments) for key in ("left", "right") if key in given}
    if not wide:
        given["needs"] = tuple(map(in_latin_1, given.get("needs", ())))
    patterns = [
        (_filled(pattern["regex"], fragments), float(pattern["score"]))
        for pattern in entry["patterns"]
    ]
    return [
        Rule(
            name,
            entry["supported_entity"],
            regex if wide else in_latin_1(regex),
            score,
            check=HOOKS.get(validate),
            spans=SPANS.get(validate),
            around=AROUND.get(entry.get("around") or ""),
            **given,
        )
        for regex, score in patterns
    ]


def _filled(text: str, fragments: _Fragments) -> str:
    """Return a pattern with each ``<<name>>`` replaced by the fragment of that name: one of a list."""

    def piece(match: re.Match[str]) -> str:
        fragment = fragments[match[1]]
        return _filled(
            fragment if isinstance(fragment, str) else f"(?:{'|'.join(fragment)})", fragments
        )

    return _FRAGMENT.sub(piece, text)


@cache
def secrets() -> tuple[Rule, ...]:
    """Return the rules for secrets."""
    return rules_of(SHIPPED / "secrets.yaml")


@cache
def rules() -> tuple[Rule, ...]:
    """Return all pattern rules."""
    return tuple(rule for file in _FILES for rule in rules_of(SHIPPED / f"{file}.yaml"))
