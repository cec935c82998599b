"""All pattern rules of our own: those of the YAML files beside this module, and those written in Python."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from governance.detect.rules.hooks import HOOKS
from governance.detect.rules.rule import Rule
from trajectory.errors import ConfigurationError

_HERE = Path(__file__).parent
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Reads the files ten times as fast where PyYAML has libyaml."""
_SAME = (
    "group", "fewest_digits", "digits_in_a_row", "shortest", "digits", "spaced", "not_in_queries", "wide",
    "ignore_case", "left", "right", "with_entity",
)  # fmt: skip
_WORDS = ("needs", "context", "against")
_KEYS = frozenset({"name", "supported_entity", "patterns", "validate", *_SAME, *_WORDS})


def rules_of(path: Path) -> tuple[Rule, ...]:
    """Return the rules of a YAML file.

    Raises:
        ConfigurationError: the file is no registry of recognisers, or names an unknown key or check.
    """
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 - a safe loader
        fragments = document.get("fragments") or {}
        return tuple(
            rule for entry in document["recognizers"] for rule in _rules(path, entry, fragments)
        )
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f'{path}: not a registry of recognisers ({type(error).__name__}: {error}). See "A rule of '
            'your own" in policies/README.md for its keys.'
        ) from error


def has_checks(path: Path) -> bool:
    """Whether a recogniser of a policy's file asks for a named check: then its rules are ours to read."""
    try:
        return "validate:" in path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _rules(path: Path, entry: dict[str, Any], fragments: Mapping[str, str]) -> list[Rule]:
    name = entry["name"]
    if unknown := sorted(entry.keys() - _KEYS):
        raise ConfigurationError(
            f"{path}: {name}: unknown key {unknown[0]!r}. Valid: {', '.join(sorted(_KEYS))}."
        )
    check = entry.get("validate")
    if check is not None and check not in HOOKS:
        raise ConfigurationError(
            f"{path}: {name}: unknown check {check!r}. Valid: {', '.join(sorted(HOOKS))}."
        )
    given = {key: entry[key] for key in _SAME if key in entry}
    given |= {key: tuple(map(str, entry[key])) for key in _WORDS if key in entry}
    given |= {key: _filled(given[key], fragments) for key in ("left", "right") if key in given}
    return [
        Rule(
            name,
            entry["supported_entity"],
            _filled(pattern["regex"], fragments),
            float(pattern["score"]),
            check=None if check is None else HOOKS[check],
            **given,
        )
        for pattern in entry["patterns"]
    ]


def _filled(text: str, fragments: Mapping[str, str]) -> str:
    """Return a pattern with each ``<<name>>`` replaced by the fragment of that name."""
    while "<<" in text:
        begin = text.index("<<")
        end = text.index(">>", begin)
        text = text[:begin] + fragments[text[begin + 2 : end]] + text[end + 2 :]
    return text


@cache
def secrets() -> tuple[Rule, ...]:
    """Return the rules for secrets."""
    return rules_of(_HERE / "secrets.yaml")


@cache
def rules() -> tuple[Rule, ...]:
    """Return all pattern rules."""
    from governance.detect.names.told import TOLD_NAMES
    from governance.detect.rules.accounts import ACCOUNTS
    from governance.detect.rules.passwords import PASSWORDS

    files = ("identifiers", "records", "addresses", "residence", "unique")
    read = [rule for file in files for rule in rules_of(_HERE / f"{file}.yaml")]
    return (*secrets(), *PASSWORDS, *ACCOUNTS, *read, *TOLD_NAMES)
