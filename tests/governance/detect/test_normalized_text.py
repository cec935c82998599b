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
        ("jane&#0000000064;example&#x00000002e;com", "jane@example.com"),
        (r"jane\u{40}example\u{00002E}com J\u{fc}rgen", "jane@example.com Jürgen"),
        (r"jane\U00000040example.com", "jane@example.com"),
        ("> to jane@\n> example.com, now", "> to jane@example.com, now"),
        ("jane@\r\n  mail.example.com", "jane@mail.example.com"),
        (r"a\nb", "a\nb"),
        ("100 % of", "100 % of"),
        ("ﬁle", "file"),
        ("name=J%C3%BCrgen%20M%c3%bcller", "name=Jürgen Müller"),
        ("J%25C3%25BCrgen", "Jürgen"),
        ("q=%E7%8E%8B%E5%B0%8F%E6%98%8E", "q=王小明"),
        (r"b'J\xc3\xbcrgen M\\xc3\\xbcller'", "b'Jürgen Müller'"),
        (r"ascii: 'J\xfcrgen'", "ascii: 'Jürgen'"),
        (r"uid=J\C3\BCrgen,ou=People", "uid=Jürgen,ou=People"),
        (r'"cv/J\303\274rgen.pdf"', '"cv/Jürgen.pdf"'),
        ("FN;QUOTED-PRINTABLE:J=C3=BCrgen M=C3=BC=\r\nller", "FN;QUOTED-PRINTABLE:Jürgen Müller"),
        ("Dear J=C3=BCrgen", "Dear Jürgen"),
        ("=?utf-8?q?J=C3=BCrgen_=40home?= a_b", "=?utf-8?q?Jürgen @home?= a_b"),
        (
            "content-transfer-encoding: quoted-printable\n\niban=3DDE89 3704=\n 0044 M=FCller O=92Brien",
            "content-transfer-encoding: quoted-printable\n\niban=DE89 3704 0044 Müller O'Brien",
        ),
        ('<a href=3D"tel:+49171=\n1234567">', '<a href="tel:+491711234567">'),
    ],
)
def test_evasions_are_undone(text: str, seen: str) -> None:
    assert view_of(text).text == seen


@pytest.mark.parametrize(
    "text",
    [
        "phone LIKE '%4155550132%'",
        "phone LIKE '%415-555-0132'",
        'phone LIKE "%2025550132%"',
        "card LIKE '%4111111111111111%'",
        "name LIKE '%Fernandez%' OR name LIKE '%Eduardo%'",
        "iban=DE89370400440532013000",
        "phone=4155550132",
        "color=FF0000; a=\nb",
        "%C3 %BC",
        "=C3=",
        "as user@\nhost: x",
        "@\nnext.item",
        r"\u{110000} \U00110000",
        "&#" + "0" * 5000 + "64;",
    ],
)
def test_wildcards_and_assignments_are_no_escapes(text: str) -> None:
    assert view_of(text).text == text


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


@given(st.text(alphabet=st.characters(max_codepoint=0x7F, blacklist_characters="%&\\=")))
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
