"""Cues that announce a name."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from governance.detect.names.cues import ANY, CUES, NONE, PLAIN, STRONG, cue

_DRAWN = st.from_regex(re.compile(CUES.encode("latin-1"), re.IGNORECASE | re.MULTILINE))


def test_how_strongly_a_name_is_announced() -> None:
    for before, strength in (
        (b"my name is ", STRONG),
        (b"Dear Mr. ", STRONG),
        (b"please ask ", PLAIN),
        (b"se\xf1or ", PLAIN),
        (b"cardholder: ", STRONG),
        (b"the tall ", NONE),
        (b"", NONE),
    ):
        assert cue(before + b"Zed", len(before)) == strength, before


@settings(max_examples=1000, deadline=None)
@given(_DRAWN)
def test_no_quick_look_hides_a_cue(before: bytes) -> None:
    begins = re.search(rb"\w\Z", before) is None  # else no name begins behind it
    if begins and len(before) <= 90 and ANY.search(before) is not None:
        assert cue(before + b"Zed", len(before)) != NONE
