"""What was said: its words."""

import re

from hypothesis import given
from hypothesis import strategies as st

from proxy.artifacts.said_texts import words_of


@given(st.text(st.sampled_from(" \t\n\u2003\x1caZé_汉1²½-.,'\u0301🙂"), max_size=30))
def test_words_are_what_stands_between_other_characters(text: str) -> None:
    assert words_of(text) == {*re.findall(r"\w+", text)}
