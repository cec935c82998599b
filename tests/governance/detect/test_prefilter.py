"""Choosing patterns: exactly those whose literals and digits are in the text, in their order."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from governance.detect.gate import Gate
from governance.detect.matcher import Runner
from governance.detect.normalized_text import in_latin_1, view_of
from governance.detect.offline_imports import load
from governance.detect.prefilter import Prefilter
from governance.detect.presidio import LEAST, STOCK, StockRunner
from governance.detect.rules.catalog import rules
from governance.detect.rules.checks import ip_address
from governance.detect.rules.literals import required_literals
from governance.detect.rules.rule import Rule
from tests.governance.hostile import HOSTILE

RUNNERS = [Runner.of(rule) for rule in rules()]
CHOICE = Prefilter(RUNNERS)
GATED = [(rule.regex, rule) for rule in rules() if not rule.wide] + [
    (pattern.regex, StockRunner(recognizer, pattern).rule)
    for name in STOCK
    if name in LEAST
    for recognizer in [getattr(load("presidio_analyzer.predefined_recognizers"), name)()]
    for pattern in recognizer.patterns
]
"""Patterns, and what keeps texts from them."""
WIDE = [rule for rule in rules() if rule.wide]
_OF_A_SCRIPT = {
    r"\[\^\\P\{Han\}[^\]]*\]": "[山川]",
    r"\\p\{Han\}": "山川",
    r"\\p\{Hiragana\}": "あ-ん",
    r"\\p\{Katakana\}": "ア-ン",
    r"\\p\{Hangul\}": "[가-힣]",
    r"\\p\{Devanagari\}": "क-ह",
    r"\\p\{Arabic\}": "ب-ي",
    r"\\p\{Hebrew\}": "א-ת",
    r"\\p\{Lu\}": "[А-Я]",
    r"\\p\{Ll\}": "[а-я]",
}
"""Letters of scripts, which Python's expressions have no classes for."""
(IPV6_IN_FULL,) = [rule.regex for rule in rules() if rule.name == "ipv6_in_full"]


def needed(rule: Rule, gate: Gate) -> bool:
    """Whether a text has what a rule asks for, asked one by one."""
    if (rule.digits and not gate.digits) or len(gate.lowered) < rule.shortest:
        return False
    if rule.spaced and " " not in gate.lowered:
        return False
    if rule.wide and not any(char > "\xff" for char in gate.view.text):
        return False
    if sum(char in "0123456789" for char in gate.lowered) < rule.fewest_digits:
        return False
    rows = [len(row) for row in re.findall("[0-9]+", gate.lowered)]
    if gate.digits and max(rows) < rule.digits_in_a_row:
        return False
    if rule.wide:
        text = gate.view.text.casefold()
        return not rule.needs or any(view_of(need).text.casefold() in text for need in rule.needs)
    return not rule.needs or any(literal in gate.lowered for literal in rule.needs)


@pytest.mark.parametrize(
    "text",
    [
        *HOSTILE.values(),
        "",
        "x",
        "ACCOUNT 12 345",
        "my PASSport é\u0661",
        "пароль: x",
        "ПАРОЛЬ",
        "मेरा नाम है",
    ],
)
def test_the_scan_chooses_in_order_and_leaves_out_nothing_that_matches(text: str) -> None:
    gate = Gate(view_of(text[:3000]))
    chosen = CHOICE.of(gate)
    assert chosen == tuple(one for one in RUNNERS if one in set(chosen))
    assert set(chosen) <= {one for one in RUNNERS if needed(one.rule, gate)}
    for one in set(RUNNERS) - set(chosen):
        if needed(one.rule, gate):
            assert list(one.run(gate, ())) == []


def test_a_pattern_is_tried_where_all_its_literals_are() -> None:
    rule = Rule("pin", "X", r"\b(?:pin|puk)\b[^\n]{0,9}(?:code|number)", 1.0, needs=("pin", "puk"))
    choice = Prefilter([Runner.of(rule)])
    for text, tried in (
        ("the PIN, a CODE", True),
        ("code: pin", True),
        ("a pin", False),
        ("number", False),
    ):
        assert bool(choice.of(Gate(view_of(text)))) is tried


def test_literals_within_literals_are_all_seen() -> None:
    rules = [Rule(name, "X", name, 1.0) for name in ("pass", "passport", "port")]
    choice = Prefilter([Runner.of(rule) for rule in rules])
    chosen = choice.of(Gate(view_of("a PASSPORT")))
    assert [one.rule.name for one in chosen] == ["pass", "passport", "port"]


def test_no_literals_at_all() -> None:
    always = Runner.of(Rule("always", "X", "x", 1.0))
    assert Prefilter([always]).of(Gate(view_of("an X"))) == (always,)
    assert Prefilter([always]).of(Gate(view_of("anything"))) == ()


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from([one for one in RUNNERS if not one.rule.wide]))
def test_patterns_that_are_tried_together_match_as_each_alone_does(
    data: st.DataObject, runner: Runner
) -> None:
    drawn = st.from_regex(runner.rule.regex, fullmatch=True, alphabet=st.characters(codec="ascii"))
    text = f"{data.draw(st.text(max_size=5))}\n{data.draw(drawn)}{data.draw(st.text(max_size=5))}"
    gate = Gate(view_of(text))
    for one in RUNNERS:
        if needed(one.rule, gate) and one not in CHOICE.of(gate):
            assert list(one.run(gate, ())) == []


@pytest.mark.parametrize("length", [20, 60, 200, 900])
def test_patterns_too_large_to_be_tried_together_are_tried_one_by_one(length: int) -> None:
    """RE2 gives up where its memory is too small, while it compiles or silently while it looks."""
    large = [Runner.of(Rule(str(n), "X", rf"(?:[a-z]\d?){{{length}}}{n}", 1.0)) for n in range(60)]
    small = Runner.of(Rule("small", "X", "here", 1.0))
    assert small in Prefilter([*large, small]).of(Gate(view_of("it is here")))


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(GATED))
def test_a_pattern_matches_nothing_that_it_is_kept_from(
    data: st.DataObject, gated: tuple[str, Rule]
) -> None:
    regex, rule = gated
    text = data.draw(st.from_regex(regex, fullmatch=True, alphabet=st.characters(codec="ascii")))
    if rule.name == "ipv6" and "::" not in text:  # nothing was left out of it
        assert not ip_address(text) or re.fullmatch(IPV6_IN_FULL, text, re.IGNORECASE)
        return
    assert len(text) >= rule.shortest
    assert sum(map(str.isdecimal, text)) >= rule.fewest_digits
    rows = [len(row) for row in re.findall(r"\d+", text)]
    assert max(rows, default=0) >= rule.digits_in_a_row
    assert not rule.needs or any(need in text.lower() for need in rule.needs)
    for literals in required_literals(in_latin_1(regex)):
        assert any(literal in text.lower() for literal in literals)
    assert not rule.spaced or " " in text


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(WIDE))
def test_a_wide_pattern_matches_nothing_that_it_is_kept_from(
    data: st.DataObject, rule: Rule
) -> None:
    regex = view_of(rule.regex).text
    for script, letters in _OF_A_SCRIPT.items():
        regex = re.sub(script, letters, regex)
    flags = re.MULTILINE | (re.IGNORECASE if rule.ignore_case else re.NOFLAG)
    text = data.draw(st.from_regex(re.compile(regex, flags), fullmatch=True))
    held = text.casefold()
    assert any(view_of(need).text.casefold() in held for need in rule.needs)


def test_a_rule_is_tried_where_its_rarest_verb_stands() -> None:
    (asked,) = (runner for runner in RUNNERS if runner.rule.name == "told_name_asked")
    gate = Gate(view_of("Puoi scrivere a Fridolina?"))
    assert asked in CHOICE.of(gate)
    assert [hit.entity for hit in asked.run(gate, ())] == ["PERSON"]
