"""Choosing patterns: exactly those whose literals and digits are in the text, in their order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from governance.detect.choosing import Choice
from governance.detect.presidio import SHORTEST, STOCK, marks
from governance.detect.quiet import load
from governance.detect.rule import ANY_DIGIT, Rule
from governance.detect.rules import RULES
from governance.detect.runners import Gate, Runner
from governance.detect.view import view_of
from tests.governance.hostile import HOSTILE

RUNNERS = [Runner.of(rule) for rule in RULES]
CHOICE = Choice(RUNNERS)
GATED: list[tuple[str, int, tuple[str, ...]]] = [
    (rule.regex, rule.shortest, (" ",) if rule.spaced else ())
    for rule in RULES
    if rule.shortest > 1
] + [
    (pattern.regex, SHORTEST[name], marks(pattern.regex) if name == "DateRecognizer" else ())
    for name in STOCK
    if name in SHORTEST
    for pattern in getattr(load("presidio_analyzer.predefined_recognizers"), name)().patterns
]
"""Patterns that short texts are kept from, and those that need one of some marks."""


def needed(rule: Rule, gate: Gate) -> bool:
    """Whether a text has what a rule asks for, asked one by one."""
    if (rule.digits and not gate.digits) or len(gate.lowered) < rule.shortest:
        return False
    if rule.spaced and " " not in gate.lowered:
        return False
    if rule.needs is ANY_DIGIT:
        return gate.some_digit
    return not rule.needs or any(literal in gate.lowered for literal in rule.needs)


@pytest.mark.parametrize(
    "text", [*HOSTILE.values(), "", "x", "ACCOUNT 12 345", "my PASSport é\u0661"]
)
def test_the_scan_chooses_what_one_by_one_would(text: str) -> None:
    gate = Gate(view_of(text[:3000]))
    assert CHOICE.of(gate) == tuple(one for one in RUNNERS if needed(one.rule, gate))


def test_literals_within_literals_are_all_seen() -> None:
    rules = [Rule(name, "X", name, 1.0, needs=(name,)) for name in ("pass", "passport", "port")]
    choice = Choice([Runner.of(rule) for rule in rules])
    chosen = choice.of(Gate(view_of("a PASSPORT")))
    assert [one.rule.name for one in chosen] == ["pass", "passport", "port"]


def test_no_literals_at_all() -> None:
    always = Runner.of(Rule("always", "X", "x", 1.0))
    assert Choice([always]).of(Gate(view_of("anything"))) == (always,)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(GATED))
def test_a_pattern_matches_nothing_that_it_is_kept_from(
    data: st.DataObject, gated: tuple[str, int, tuple[str, ...]]
) -> None:
    regex, shortest, needs = gated
    text = data.draw(st.from_regex(regex, fullmatch=True))
    assert len(text) >= shortest
    assert not needs or any(mark in text for mark in needs)
