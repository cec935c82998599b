"""Conditions on arguments: they hold for every receiver, possibly for one, or for none."""

from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.guard.conditions import (
    DOUBT,
    NO,
    YES,
    Answer,
    ArgumentCondition,
    ArgumentTest,
    fits,
)
from proxy.guard.json_path import JsonPath
from proxy.guard.strict_json import parse_strictly


def answer(test: str, against: Any, value: Any) -> Answer:
    listed = tuple(against) if isinstance(against, list) else (against,)
    condition = ArgumentCondition(JsonPath.parse("$.x"), ArgumentTest(test), listed)
    return condition.answer({"x": value})


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_patterns_fit_as_globs_do(pattern: str, text: str) -> None:
    assert fits(pattern, text) == fnmatchcase(text, pattern)


def test_no_pattern_takes_long() -> None:
    assert not fits("*a" * 200 + "b", "a" * 4000)


@pytest.mark.parametrize(
    ("test", "against", "value", "told"),
    [
        ("one_of", ["a", "b"], "a", YES),
        ("one_of", ["a"], "A", DOUBT),
        ("one_of", ["a"], "ａ ", DOUBT),
        ("one_of", ["a"], "c", NO),
        ("one_of", [5], 5, YES),
        ("one_of", [5], "5", DOUBT),
        ("one_of", [5], ["5"], DOUBT),
        ("one_of", [True], True, YES),
        ("one_of", [1], True, NO),
        ("one_of", [True], "TRUE", DOUBT),
        ("none_of", ["a"], "b", YES),
        ("none_of", ["a"], "a", NO),
        ("none_of", ["a"], "A", DOUBT),
        ("like", ["*.txt"], "a.txt", YES),
        ("like", ["*.txt"], "a.TXT", DOUBT),
        ("like", ["*.txt"], "a.md", NO),
        ("like", ["*"], 7, DOUBT),
        ("like", ["*.pem"], 7, NO),
        ("like", ["*.pem"], ["a.txt", {"x": "b.pem"}], DOUBT),
        ("like", ["*.pem"], ["a.txt"], NO),
        ("unlike", ["*.pem"], ["a.txt"], YES),
        ("other_hosts", ["a.com"], ["https://a.com/"], DOUBT),
        ("unlike", ["*.txt"], "a.txt", NO),
        ("contains", ["drop table"], "x; DROP TABLE y", YES),
        ("contains", ["drop table"], "x; drop\n  table y", DOUBT),
        ("contains", ["drop table"], "dr\u200bop table", DOUBT),
        ("contains", ["drop table"], "drop", NO),
        ("above", 1000, 1001, YES),
        ("above", 1000, 1000, NO),
        ("above", 1000, "1,001", DOUBT),
        ("above", 1000, "$ 2_000", DOUBT),
        ("above", 1000, "many", DOUBT),
        ("above", 1000, "999", NO),
        ("above", 1000, None, DOUBT),
        ("above", 1000, [1], DOUBT),
        ("below", 10, 9, YES),
        ("below", 10, 11, NO),
        ("longer", 3, "abcd", YES),
        ("longer", 3, [1, 2, 3], NO),
        ("inside", ["/data"], "/data/a", YES),
        ("inside", ["/data"], "/data", YES),
        ("inside", ["/data"], "/database", NO),
        ("inside", ["/data"], "/data/../etc", DOUBT),
        ("inside", ["/data"], "/data/%2e%2e/etc", DOUBT),
        ("inside", ["/data"], "/data/..\\etc", DOUBT),
        ("inside", ["/data"], "/data/a%20b", DOUBT),
        ("inside", ["/data"], "file:///data/a", YES),
        ("inside", ["/data"], "file://host/data/a", DOUBT),
        ("inside", ["/data"], "~/a", DOUBT),
        ("inside", ["/data"], "$HOME/a", DOUBT),
        ("inside", ["/data"], "a", DOUBT),
        ("inside", ["/data", "."], "a/b", YES),
        ("inside", ["/data"], "//data/a", YES),
        ("inside", ["/data"], "C:/data", DOUBT),
        ("outside", ["/data"], "/etc/passwd", YES),
        ("outside", ["/data"], "/data/x", NO),
        ("outside", ["/data"], "/data/../x", DOUBT),
        ("hosts", ["*.example.com"], "https://a.example.com/x", YES),
        ("hosts", ["example.com"], "https://example.com.:443/x", YES),
        ("hosts", ["example.com"], "https://evil.com/example.com", NO),
        ("hosts", ["example.com"], "https://example.com@evil.com/", DOUBT),
        ("hosts", ["example.com"], "https://example.com\\@evil.com/", DOUBT),
        ("hosts", ["example.com"], "//example.com/x", DOUBT),
        ("hosts", ["example.com"], "example.com/x", DOUBT),
        ("hosts", ["example.com"], "www.evil.com", NO),
        ("other_hosts", ["example.com"], "www.evil.com:80/example.com", YES),
        ("hosts", ["127.0.0.1"], "127.0.0.1:80/x", DOUBT),
        ("hosts", ["127.0.0.1"], "127.1/x", DOUBT),
        ("hosts", ["127.0.0.1"], "2130706433", DOUBT),
        ("hosts", ["127.0.0.1"], "http:/127.0.0.1/", DOUBT),
        ("hosts", ["127.0.0.1"], "http:127.0.0.1", DOUBT),
        ("hosts", ["127.0.0.1"], "a@127.0.0.1", DOUBT),
        ("hosts", ["127.0.0.1"], "http://2130706433/", DOUBT),
        ("hosts", ["127.0.0.1"], "http://0x7f.1/", DOUBT),
        ("hosts", ["127.0.0.1"], "http://127.0.0.1/", YES),
        ("other_hosts", ["example.com"], "https://evil.com/", YES),
        ("other_hosts", ["example.com"], "https://example.com/", NO),
        ("other_hosts", ["example.com"], "https://еxample.com/", DOUBT),
        ("present", True, 1, YES),
        ("present", False, 1, NO),
    ],
)  # fmt: skip
def test_answers(test: str, against: Any, value: Any, told: Answer) -> None:
    assert answer(test, against, value) == told


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("1000.00000000000000000001", DOUBT),
        ("1000.5", YES),
        ("9007199254740993", YES),
        ("1e3", NO),
        ("1e4", YES),
    ],
)
def test_numbers_are_compared_as_written_and_as_floats(written: str, told: Answer) -> None:
    assert answer("above", 1000, parse_strictly(written)) == told


def test_whole_numbers_that_floats_do_not_have_are_in_doubt() -> None:
    assert answer("one_of", [2**53], parse_strictly(str(2**53 + 1))) == DOUBT
    assert answer("below", 2**53 + 1, parse_strictly(str(2**53))) == Answer(True, True)


def test_what_is_not_there_may_be_outside_and_is_not_inside() -> None:
    for test, against, told in (
        ("outside", "/data", DOUBT),
        ("none_of", "a", DOUBT),
        ("inside", "/data", NO),
        ("above", 1, NO),
        ("present", False, YES),
        ("present", True, NO),
    ):
        condition = ArgumentCondition(JsonPath.parse("$.x"), ArgumentTest(test), (against,))
        assert condition.answer({}) == told


def test_of_several_values_one_is_enough_to_stop_and_all_are_needed_to_allow() -> None:
    condition = ArgumentCondition(JsonPath.parse("$.x[*]"), ArgumentTest.ONE_OF, ("a",))
    assert condition.answer({"x": ["a", "b"]}) == DOUBT
    assert condition.answer({"x": ["a", "a"]}) == YES


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text() | st.sampled_from(["/data/../x", "https://a@b/", "1e3", "%2e%2e", "file:/x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@given(ANYTHING, st.sampled_from([one for one in ArgumentTest if one is not ArgumentTest.PRESENT]))
def test_what_is_sure_is_possible_and_nothing_breaks(value: Any, test: ArgumentTest) -> None:
    against: Any = 3 if test in ("above", "below", "longer") else "/data"
    told = answer(test, against, value)
    assert told.possibly or not told.surely
