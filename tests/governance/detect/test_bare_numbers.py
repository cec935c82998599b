"""Numbers of JSON that a key tells of; other numbers stay, and numbers stay numbers."""

import pytest

from tests.governance.redaction_support import value


@pytest.mark.parametrize(
    ("key", "number"),
    [
        ("contact", 4155550132), ("contact_number", 4155550132), ("whatsapp", 4915112345678), ("caller", 4155550132),
        ("number", 4155550132), ("to", 4155550132), ("account", 88231904772), ("iban", 370400440532013000),
        ("dob", 19840506), ("aadhaar", 234567890124), ("cpf", 52998224725), ("pesel", 44051401359), ("dni", 12345678),
        ("steuer_id", 86095742719), ("bsn", 111222333), ("iban_digits", 370400440532013000), ("ibanNumber", 370400440532013000),
        ("account_digits", 88231904772), ("card_digits", 4012888888881881),
    ],
)  # fmt: skip
def test_a_number_that_its_key_tells_of_goes(key: str, number: int) -> None:
    assert value({key: number}) == {key: 0}


@pytest.mark.parametrize(
    ("key", "number"),
    [("number", 12345), ("to", 1710147164), ("from", 20240311), ("count", 4155550132), ("contact", 3), ("number", 1710147164)],
)  # fmt: skip
def test_other_numbers_stay(key: str, number: int) -> None:
    assert value({key: number}) == {key: number}
