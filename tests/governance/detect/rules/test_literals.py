"""What patterns cannot do without: each match has it, and rare things come first."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from governance.detect.matcher import compiled
from governance.detect.rules.literals import required_literals


def literals(regex: str) -> list[set[str]]:
    return [set(one) for one in required_literals(regex)]


def test_a_word_and_what_stands_for_it() -> None:
    assert literals("passport") == [{"passport"}]
    assert literals(r"\b(?i:Pass(?:port|wort)|PIN)\b") == [{"passport", "passwort", "pin"}]
    assert literals("gh[pousr]_x") == [{"ghp_x", "gho_x", "ghu_x", "ghs_x", "ghr_x"}]
    assert literals("né(?:e)? le") == [{"né le", "née le"}]


def test_what_may_be_missing_is_not_needed() -> None:
    assert literals("pass(?:port)?") == [{"pass"}]
    assert literals("(?:passport)*") == []
    assert literals("(?:passport)+") == [{"passport"}]
    assert literals("passport|") == []
    assert literals("passport|[a-z]+") == []
    assert literals("[^a]bcd") == [{"bcd"}]


def test_each_part_behind_something_open_is_a_condition_of_its_own() -> None:
    assert literals(r"user\d+ of[^\n]{1,9}group") == [{"group"}, {"user"}, {" of"}]
    assert literals(r"(?:key|token)\w{0,9}[:=]") == [{"key", "token"}, {":", "="}]


def test_what_stands_everywhere_is_no_condition() -> None:
    assert literals(r"in\d+") == []
    assert literals(r"\d+,") == [{","}]


def test_what_re2_reads_otherwise_is_not_read_at_all() -> None:
    for regex in (r"abc{,3}", "[[:alpha:]]abc", r"\Qabc\E", r"\p{Lu}abc", r"abc\z"):
        assert literals(regex) == []


@settings(max_examples=300, deadline=None)
@given(
    st.data(),
    st.sampled_from(
        [
            r"(?:a|bc|(?:de)?f)(?:gh[ij]|k+l)m{2}",
            r"(?i:Straße|ÉCOLE|rue)[ .]{0,2}(?:\d{1,3}|[a-c]+)x?",
            r"(?:(?:one|two|three)[ \-]?(?:four|five|six)[.:]?){1,2}(?:seven|eight)?",
            r"\b(?:x|y)\b ?(?:[0-9a-f]{2}:){2}|z\n?=",
            r"^(?:(?:ab)*c|d(?:e|f(?:g|h)?)+)$",
        ]
    ),
)
def test_every_match_has_one_of_each(data: st.DataObject, regex: str) -> None:
    drawn = data.draw(
        st.from_regex(
            re.compile(regex, re.IGNORECASE | re.ASCII), alphabet=st.characters(codec="latin-1")
        )
    )
    encoded = drawn.encode("latin-1")
    if compiled(regex).search(encoded) is None:  # a line's end is another thing to RE2
        return
    for one in required_literals(regex):
        assert any(literal in drawn.lower() for literal in one)


@pytest.mark.parametrize("depth", [10, 60])
def test_many_parts_end_soon(depth: int) -> None:
    found = literals("(?:a|b|c)" * depth + "-passport")
    assert all(one.endswith("-passport") for one in found[0])
    assert all(len(one) <= 150 for one in found)
