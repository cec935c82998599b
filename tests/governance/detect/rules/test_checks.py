"""Structure and checksums."""

import pytest

from governance.detect.rules import checks


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("4242 4242 4242 4242", True),
        ("378282246310005", True),
        ("4242 4242 4242 4243", None),
        ("9999999999999995", None),
        ("1234567890123", False),
        ("0000000000000000", False),
    ],
)
def test_cards(value: str, expected: bool | None) -> None:
    assert checks.card(value) is expected


@pytest.mark.parametrize(
    ("value", "end"),
    [
        ("DE89370400440532013000", 22),
        ("DE89 3704 0044 0532 0130 00 and more", 27),
        ("DE88370400440532013000", None),
        ("ZZ89370400440532013000", None),
        ("DE893704", None),
    ],
)
def test_where_an_iban_ends(value: str, end: int | None) -> None:
    assert checks.iban_end(value) == end


@pytest.mark.parametrize(
    "value", ["127.0.0.1", "255.255.255.255", "::1", "1::2", "300.1.1.1", "a::b"]
)
def test_addresses_of_nobody(value: str) -> None:
    assert not checks.ip_address(value)


@pytest.mark.parametrize("value", ["203.0.113.7", "10.0.0.3/8", "fe80::1", "2001:db8::1"])
def test_addresses_of_somebody(value: str) -> None:
    assert checks.ip_address(value)


@pytest.mark.parametrize("value", ["000-12-3456", "666-12-3456", "123-00-4567", "123-45-0000"])
def test_numbers_that_the_administration_never_issues(value: str) -> None:
    assert not checks.ssn(value)


def test_long_tokens() -> None:
    assert checks.issued_token("sk-gnsSLkFwMKaxeUFAjPgBrtcexmwhZYtqJd")
    assert checks.long_token("9f8a7b6c5d4e3f2a1b0c")
    assert not checks.issued_token("learn-contrib-package-name")
    assert not checks.long_token("CamelCaseClassNameFactory")
