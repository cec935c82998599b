"""What was said: its words."""

import re

from hypothesis import given
from hypothesis import strategies as st

from proxy.artifacts.said_texts import words_among


@given(
    st.text(st.sampled_from(" \t\n\u2003\x1caZé_汉1²½-.,'\u0301🙂(\""), max_size=30),
    st.frozensets(st.text(st.sampled_from("aZé_汉1²½"), min_size=1, max_size=3)),
)
def test_words_are_what_stands_between_other_characters(text: str, others: frozenset[str]) -> None:
    words = {*re.findall(r"\w+", text)}
    assert words_among(text, others) == words & others
    assert words_among(text, frozenset(words)) == words
