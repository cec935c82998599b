"""Whole addresses, and what describes a person without a name."""

import time

import pytest

from governance.detect.address_blocks import AddressBlocks
from governance.detect.finding import Unit
from governance.detect.normalized_text import view_of
from governance.detect.rules import checks
from tests.governance.redaction_support import text


@pytest.mark.parametrize(
    "block",
    [
        "3378 217 Lovers Lane\nSuite 680\nPort Whangarei\nNew Zealand 15896",
        "12 Aqqusinersuaq 176\nApt. 258\nNuuk\nGreenland 08167",
        "5850 Jana Nerudy 894\nNicosia\n, NI\n Cyprus 78891",
    ],
)
def test_an_address_goes_as_a_whole(block: str) -> None:
    clean = text(f"Please send it to this place:\n\n{block}\n\nThank you.")
    for line in block.splitlines():
        assert line.strip(" ,") not in clean
    assert "Thank you" in clean


def test_quoted_lines_and_the_name_above() -> None:
    clean = text(
        "> Tadzio Vukelic\n> 72134 Coronilla 3599\n> Suite 4\n> Nijmegen\n> Netherlands 62971\n"
    )
    assert "Vukelic" not in clean
    assert "Nijmegen" not in clean
    assert "62971" not in clean


@pytest.mark.parametrize(
    "sentence",
    [
        "Eva lives at {}, thanks.",
        "The bus drops you off at {}.",
        "My new address is {}.",
    ],
)
def test_told_addresses(sentence: str) -> None:
    assert "Dalmatinova" not in text(sentence.format("87818 Dalmatinova 68"))


@pytest.mark.parametrize(
    ("sentence", "value", "mark"),
    [
        ("We moved here from Leiria.", "Leiria", "<RESIDENCE_"),
        ("I'm originally from Eckenroth, and like it.", "Eckenroth", "<RESIDENCE_"),
        ("My zip code is 76400", "76400", "764"),
        ("The patient is a 62-year-old male", "62", "60-69"),
        ("I'll turn 23.", "23", "20-29"),
        ("My website is https://www.jo-frame.example/me", "jo-frame", "<PERSONAL_URL_"),
        ("see linkedin.com/in/jo-frame-77", "jo-frame", "<PERSONAL_URL_"),
        ("Please tell me your date of birth. It's 6/24/1991", "6/24/1991", "<DATE_OF_BIRTH"),
        ("my name is lena andersson, hello", "lena", "<PERSON_"),
        ('Ubul: "What a day."', "Ubul", "<PERSON_"),
    ],
)
def test_what_describes_a_person(sentence: str, value: str, mark: str) -> None:
    clean = text(sentence)
    assert value not in clean
    assert mark in clean


@pytest.mark.parametrize(
    "sentence",
    [
        "Python 3.13 is from October 2024 and faster than 3.12.",
        "Retry in 30 seconds, then up to 5 times in production.",
        "The city of Paris has 2 million people.",
        "Suite 12 of the tests failed at line 240.",
        "Unit 3 of 7 passed\nBuild finished 2024",
        "Months = ' Jan Feb Mar Apr May Jun'",
        "user = os.environ.get('USERNAME')",
        "IPv4Network('100.64.0.0/10') and IPv4Address('192.0.2.1')",
        "netmask 255.255.255.0",
        'db_pass: "userName"',
    ],
)
def test_what_is_nobodys(sentence: str) -> None:
    assert text(sentence) == sentence


def test_random_letters_in_quotation_marks_are_a_password() -> None:
    assert "gKPXAWrX" not in text('dbPass: "gKPXAWrX"')
    assert checks.quoted_value("MyPassWord") is False


def test_blocks_cost_little_on_hostile_text() -> None:
    for hostile in ("Suite 1 " * 2_000, "1 Aa " * 4_000, "A1\n" * 5_000, "12 Main St, " * 2_000):
        start = time.process_time()
        AddressBlocks().find([Unit(view_of(hostile))])
        assert time.process_time() - start < 3  # takes hundredths; what is not linear takes longer
