"""Identity numbers of countries, from a table that a privacy officer can read."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from governance.detect.gate import Gate
from governance.detect.matcher import Hit, Runner, compiled, supported
from governance.detect.normalized_text import view_of
from governance.detect.rules.identity_checks import CHECKS
from governance.detect.rules.registry import read_registry
from governance.detect.rules.rule import Rule

TABLE = Path(__file__).with_name("identity_numbers.yaml")
_BESIDE = r"0-9A-Za-z_\u00c0-\u024f\u0370-\u052f"
"""What may not stand beside a number; scripts that write without spaces may."""
_HELD_BY_CHECK = 0.5
_MARKS = re.compile(r"[^0-9A-Za-z\u00d1]")
_WORD = re.compile(r"\w+")
_LABELLED = 0.55
_NEAR = 4
"""So many words before a number are its label."""


@dataclass(frozen=True, slots=True)
class IdentityRunner:
    """One pattern of the table."""

    rule: Rule
    runner: Runner
    holds: Callable[[str], bool]

    @property
    def pattern(self) -> Any:
        """What RE2 compiled."""
        return self.runner.pattern

    def run(self, gate: Gate, keys: tuple[str, ...]) -> Iterator[Hit]:
        """Yield numbers whose check digits hold, and those behind their label."""
        rule, text = self.rule, gate.view.text
        for match in self.runner.pattern.finditer(gate.view.data):
            start, end = match.span()
            if start >= end or not self.runner._free(text, start, end):
                continue
            holds = self._holds(text[start:end])
            if holds and rule.score >= _HELD_BY_CHECK:
                yield Hit(rule.entity, start, end, 1.0, rule.name)
                continue
            words = gate.words_before(start)
            near = words[:-1] if holds else words[-_NEAR:-1]
            if supported(near, rule.context) or supported(keys, rule.context):
                yield Hit(rule.entity, start, end, 1.0 if holds else _LABELLED, rule.name)

    def _holds(self, value: str) -> bool:
        return self.holds(_MARKS.sub("", value).upper())


def _words(context: list[str]) -> tuple[str, ...]:
    read = (view_of(word.lower()).text for word in context)
    return tuple(dict.fromkeys(" ".join(_WORD.findall(word)) for word in read))


def _runner(entry: dict[str, Any], pattern: dict[str, Any]) -> IdentityRunner:
    context, score = _words(entry["context"]), float(pattern["score"])
    alone = score >= _HELD_BY_CHECK
    rule = Rule(
        entry["name"],
        entry["supported_entity"],
        pattern["regex"],
        score,
        context=context,
        needs=tuple(pattern.get("needs", ())) if alone else _literals(context),
        fewest_digits=entry.get("fewest_digits", 2),
        digits="digits_in_a_row" in entry,
        digits_in_a_row=entry.get("digits_in_a_row", 0),
        left=_BESIDE,
        right=_BESIDE,
    )
    plain = Runner(
        replace(rule),
        compiled(rule.regex),
        re.compile(f"[{_BESIDE}]|[.\\-/](?<=[0-9A-Za-z].)"),
        re.compile(f"[{_BESIDE}]|[\\-/][0-9A-Za-z]|\\.[0-9]"),
    )
    return IdentityRunner(rule, plain, CHECKS[entry["validate"]])


def _literals(context: tuple[str, ...]) -> tuple[str, ...]:
    """Return the longest word of each phrase (all of it where that is a letter), as the scan for literals reads it."""
    longest: list[str] = []
    for phrase in context:
        word = max(phrase.split(), key=len)
        longest += [word] if len(word) > 1 else [phrase, phrase.replace(" ", ".")]
    written = [word for one in longest for word in (one, one.capitalize(), one.upper())]
    return tuple({view_of(word).data.lower().decode("latin-1") for word in written})


@cache
def table() -> tuple[dict[str, Any], ...]:
    """Return the entries of the table."""
    return tuple(read_registry(TABLE)["recognizers"])


_NO_KEYS = frozenset(
    [
        "uid",
        "run",
        "cc",
        "ci",
        "fin",
        "epic",
        "c_f",
        "t_c",
        "r_č",
        "crn",
        "pan",
        "fiscal",
        "patente",
        "identity",
        "ausweis",
        "inn",
        "tin",
        "emirates",
    ]
)
"""Words of context that are other things as a key."""


@cache
def identity_keys() -> str:
    """Return a pattern of the keys under which identity numbers stand."""
    words = {
        "_".join(view_of(word.lower()).text.split())
        for entry in table()
        for word in entry["context"]
    }
    either = "|".join(re.escape(word).replace("_", "_?") for word in sorted(words - _NO_KEYS))
    return rf"(?:{either})(?:_?(?:number|num|no|nr|nummer|numero|número|id|code))?"


IDENTITY_WORDS = (
    "aadhaar", "aadhar", "pesel", "steuer", "idnr", "burgerservice", "personnummer", "personnr", "fodselsnummer", "cpr", "curp",
    "cuit", "cuil", "cedula", "snils", "kimlik", "tckn", "nino", "amka", "afm", "isikukood", "cnpj", "my_number", "nric",
    "rrn", "pps", "ahv", "svnr", "nir",
)  # fmt: skip
"""Parts of keys under which a bare number may be somebody's identity number."""


def identity_runners(entities: frozenset[str]) -> Iterator[IdentityRunner]:
    """Yield a runner for each pattern of these entity types."""
    for entry in table():
        if entry["supported_entity"] in entities:
            for pattern in entry["patterns"]:
                yield _runner(entry, pattern)
