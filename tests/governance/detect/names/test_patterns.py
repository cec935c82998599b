"""How names are written: the fast pattern finds what the plain one does."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from governance.detect.names.patterns import NAME, NAME_AT

PLAIN = re.compile(rf"(?<![^\W_])(?<!\w_){NAME}")
"""A name behind neither a letter nor a digit, nor an underscore within a word."""
TEXTS = st.lists(
    st.sampled_from(
        ["Ann", "Lee", "de la", "O'Neil", "J.", "Łukasz", "x", "a_", "_", "7", "-", "'", " ", "\n", ".", ","]
    ),
    max_size=14,
).map("".join)  # fmt: skip


def spans(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    return [match.span() for match in pattern.finditer(text)]


@given(TEXTS | st.text(max_size=40))
@example("a_Ann _Ann Ann_b")
@example("\nAnn\u00a0Lee")
def test_the_fast_pattern_finds_what_the_plain_one_does(text: str) -> None:
    assert spans(NAME_AT, text) == spans(PLAIN, text)
    for place in range(len(text)):
        fast, plain = NAME_AT.match(text, place), PLAIN.match(text, place)
        assert (fast and fast.span()) == (plain and plain.span())
