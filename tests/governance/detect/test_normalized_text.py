"""The normalised view: evasions are undone, offsets lead back to the original."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.detect.normalized_text import view_of


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain", "plain"),
        ("jo\u200bhn", "john"),
        ("soft\u00adhyphen", "softhyphen"),
        ("a\u00a0b", "a b"),
        ("212\u2013555\u22120100", "212-555-0100"),
        ("２１２", "212"),
        ("٢١٢", "212"),
        (r"jane\u0040example.com", "jane@example.com"),
        ("jane%40example.com", "jane@example.com"),
        ("jane%2540example%25252Ecom", "jane@example.com"),
        ("25%25 of 50%", "25% of 50%"),
        ("jane&#64;example.com", "jane@example.com"),
        ("jane&#x40;example&period;com", "jane@example.com"),
        (r"a\nb", "a\nb"),
        ("100 % of", "100 % of"),
        ("ﬁle", "file"),
    ],
)
def test_evasions_are_undone(text: str, seen: str) -> None:
    assert view_of(text).text == seen


def test_a_span_of_the_view_covers_the_whole_escape() -> None:
    text = "to jane%40example.com now"
    view = view_of(text)
    start = view.text.index("jane@")
    assert text[slice(*view.span(start, start + len("jane@example.com")))] == "jane%40example.com"


@given(st.text())
def test_one_byte_per_character_and_offsets_within_the_text(text: str) -> None:
    view = view_of(text)
    assert len(view.data) == len(view.text)
    last = 0
    for place in range(len(view.text)):
        start, end = view.span(place, place + 1)
        assert 0 <= start < end <= len(text)
        assert start >= last
        last = start


@given(st.text(alphabet=st.characters(max_codepoint=0x7F, blacklist_characters="%&\\")))
def test_plain_ascii_is_its_own_view(text: str) -> None:
    view = view_of(text)
    assert view.text == text
    assert view.starts is None


def test_digits_that_are_spelled_one_by_one_come_together() -> None:
    text = "ssn 2 9 4 1 4 7 2 2 3."
    view = view_of(text)
    assert view.text == "ssn 294147223."
    assert view.span(4, 13) == (4, 21)


@pytest.mark.parametrize("text", ["1 2 3 4 5 6", "10 20 30 40 50 60 70", "1.2 3 4 5 6 7 8 9.1"])
def test_tables_and_short_runs_stay(text: str) -> None:
    assert view_of(text).text == text
