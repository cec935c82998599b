"""Realistic surrogates pass for their types, follow from key and value alone, and are nobody's."""

import ipaddress
import json
import re

import jsonschema
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from trajectory.realistic_surrogate import drawn, name_units, own_spans

KEY, CHECK = b"k" * 32, b"c" * 32
EXAMPLES = [
    ("PERSON", "Petra"),
    ("PERSON", "OSTROVA"),
    ("PERSON", "petra"),
    ("EMAIL_ADDRESS", "petra@example.org"),
    ("USERNAME", "petra7"),
    ("PERSONAL_URL", "https://example.org/petra"),
    ("PERSONAL_URL", "example.org/petra"),
    ("PHONE_NUMBER", "+49 151 2345678"),
    ("PHONE_NUMBER", "+491512345678"),
    ("PHONE_NUMBER", "0151 2345678"),
    ("PHONE_NUMBER", "01512345678"),
    ("IP_ADDRESS", "10.20.30.40"),
    ("IP_ADDRESS", "fd00::17"),
    ("CREDIT_CARD", "4111 1111 1111 1111"),
    ("CREDIT_CARD", "4111-1111-1111-1111"),
    ("CREDIT_CARD", "4111111111111111"),
    ("US_SSN", "078-05-1120"),
    ("US_SSN", "078051120"),
    ("IBAN_CODE", "DE89 3704 0044 0532 0130 00"),
    ("IBAN_CODE", "DE89370400440532013000"),
]
VALUES = st.tuples(st.sampled_from(EXAMPLES), st.text(max_size=5)).map(
    lambda one: (one[0][0], one[0][1] + one[1])
)


def made(entity: str, written: str, *, key: bytes = KEY, attempt: int = 0) -> str:
    name = drawn(key, entity, written, check=CHECK, attempt=attempt)
    assert name is not None
    return name


@given(VALUES)
def test_each_follows_from_key_and_value_and_needs_no_escape(value: tuple[str, str]) -> None:
    name = made(*value)
    assert name == made(*value)
    assert json.dumps(name) == f'"{name}"'
    small = ("PHONE_NUMBER", "IP_ADDRESS", "US_SSN")  # two draws of few may be one
    assert made(*value, attempt=1) != name or value[0] in small


def test_scopes_differ() -> None:
    for entity, written in EXAMPLES:
        assert made(entity, written) != made(entity, written, key=b"o" * 32)


@given(VALUES, VALUES)
@example(("PHONE_NUMBER", "+49151"), ("PHONE_NUMBER", "49151"))
def test_none_is_the_beginning_of_another(one: tuple[str, str], other: tuple[str, str]) -> None:
    names = made(*one), made(*other)
    assume(names[0] != names[1])
    assert not names[0].startswith(names[1])


@given(VALUES, st.sampled_from(["", "Dear ", "to:", '{"a":"', "(", "\u00bb"]))
def test_an_installation_knows_its_own(value: tuple[str, str], before: str) -> None:
    name = made(*value)
    for behind in ("", ".", ", and", '"}', ")\n", "?"):
        text = f"{before}{name}{behind}"
        assert [*own_spans(text, CHECK)] == [(len(before), len(before) + len(name))] or (
            behind == "?" and value[0] == "PERSONAL_URL"  # a question in a URL could be anybody's
        )


@pytest.mark.parametrize(
    "text",
    [
        "petra.ostrova@mail.invalid",
        "Petra Ostrova, Sebastian, Karimova, Telimorab",
        "https://petra-ostrova.invalid/",
        "4000 0000 0000 0002",
        "4111 1111 1111 1111",
        "192.168.1.1",
        "078-05-1120",
        "500-00-1234",
        "000-12-3456",
        "+1 212 555 0147",
        "212-555-0147",
        "+1-292-555-0147",
        "2925550147",
        "198.18.100.101",
        "240.100.100.101",
        "2001:db8:0000:0000:0000:0000:0000:0001",
        "XX33 3704 0044 0532 0130",
        "DE89 3704 0044 0532 0130 00",
    ],
)
def test_what_only_looks_alike_is_not_known(text: str) -> None:
    assert not [*own_spans(text, CHECK)]


def test_nothing_hides_beside_one() -> None:
    mail, url = made("EMAIL_ADDRESS", "a"), made("PERSONAL_URL", "https://a")
    for text in (f"petra.{mail}", f"{mail}.org", f"{url}petra", f"{url}?petra", f"petra-{url[8:]}"):
        assert not [*own_spans(text, CHECK)]


@pytest.mark.parametrize(("entity", "written"), EXAMPLES)
def test_those_of_another_installation_are_not_known(entity: str, written: str) -> None:
    foreign = drawn(KEY, entity, written, check=b"other" * 8)
    assert not [*own_spans(str(foreign), CHECK)]


@given(st.text(max_size=9))
def test_they_pass_the_formats_of_tool_schemas(more: str) -> None:
    checks = jsonschema.FormatChecker()

    def passes(format_: str, entity: str, written: str) -> None:
        jsonschema.validate(
            made(entity, written + more.replace(":", "")),
            {"type": "string", "format": format_},
            format_checker=checks,
        )

    passes("email", "EMAIL_ADDRESS", "a@x.org")
    passes("ipv4", "IP_ADDRESS", "10.1.1.1")
    address = ipaddress.ip_address(made("IP_ADDRESS", "::1" + more))
    assert address in ipaddress.ip_network("2001:db8::/32")
    assert re.fullmatch(r"\+[1-9]\d{6,14}", made("PHONE_NUMBER", "+491512"))
    assert re.fullmatch(r"https://[a-z-]+\.invalid/", made("PERSONAL_URL", "http://x" + more))


@given(st.text(max_size=9))
def test_their_check_digits_are_right(written: str) -> None:
    digits = made("CREDIT_CARD", written).replace(" ", "").replace("-", "")
    total = sum(
        sum(divmod(int(digit) * (1 + at % 2), 10)) for at, digit in enumerate(reversed(digits))
    )
    assert total % 10 == 0
    whole = made("IBAN_CODE", written).replace(" ", "")
    moved = "".join(str(int(one, 36)) for one in whole[4:] + whole[:4])
    assert int(moved) % 97 == 1


@pytest.mark.parametrize(("entity", "written"), EXAMPLES)
def test_few_values_of_a_range_are_known_by_chance(entity: str, written: str) -> None:
    foreign = [str(drawn(KEY, entity, f"{written}{at}", check=b"other" * 8)) for at in range(3000)]
    assert sum(1 for one in foreign if [*own_spans(one, CHECK)]) <= 12


def test_types_without_a_range_have_none() -> None:
    assert drawn(KEY, "DATE_OF_BIRTH", "1984-05-06", check=CHECK) is None


@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("Petra Ostrova", ["Petra", "Ostrova"]),
        ("J. Smith", ["J. Smith"]),
        ("Ann B. Lee", ["Ann B.", "Lee"]),
        ("Jean-Luc O'Brien", ["Jean-Luc", "O'Brien"]),
        ("de la Cruz, Ana", ["de la Cruz", "Ana"]),
        ("\u5c71\u7530\u592a\u90ce", ["\u5c71\u7530\u592a\u90ce"]),
        ("\u674e\u660e", []),
    ],
)
def test_names_are_replaced_word_by_word(name: str, units: list[str]) -> None:
    assert [name[start:end] for start, end in name_units(name)] == units
