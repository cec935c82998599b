"""Resolving overlapping findings leaves nothing of any of them over."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from governance.detect.finding import Finding
from governance.redact.splice import resolved, spliced

findings = st.lists(
    st.builds(
        lambda start, length, entity: Finding(entity, start, start + length, 0.9, "d"),
        st.integers(0, 50),
        st.integers(1, 20),
        st.sampled_from(["PERSON", "EMAIL_ADDRESS", "API_KEY", "URL"]),
    )
)


@given(findings)
def test_spans_are_apart_and_cover_every_finding(found: list[Finding]) -> None:
    spans = resolved(found)
    assert all(a.end <= b.start for a, b in pairwise(spans))
    covered = {place for span in spans for place in range(span.start, span.end)}
    assert covered == {place for f in found for place in range(f.start, f.end)}


def test_the_stronger_type_names_the_union() -> None:
    (span,) = resolved(
        [Finding("PERSON", 0, 8, 0.8, "a"), Finding("EMAIL_ADDRESS", 5, 20, 1.0, "b")]
    )
    assert span[:3] == ("EMAIL_ADDRESS", 0, 20)


def test_splicing() -> None:
    assert spliced("abcdef", [(0, 1, "X"), (3, 5, "")]) == "Xbcf"
