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


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("12 rue Victor Hugo", ("12", "rue", "Hugo")), ("Livraison : 8 bis allée des Tilleuls, 37000 Tours", ("8 bis", "Tilleuls", "37000")),
        ("Am Bahndamm 4\n24103 Kiel", ("Bahndamm 4", "24103")), ("Zur Alten Mühle 17, 38100 Gifhorn", ("Mühle 17", "38100")),
        ("Oude Kade 33B, 6211 CB Maastricht", ("Kade 33B", "6211", "CB")), ("ul. Prosta 14 m. 3, 00-950 Warszawa", ("Prosta", "m. 3", "00-950")),
        ("C/ Mayor, 5, 3º izq., 28013 Madrid", ("Mayor", "izq", "28013")), ("Rua do Ouro 55, 2.º, 4050-036 Porto", ("Ouro", "2.º", "4050-036")),
        ("Via Garibaldi, 14 - 20121 Milano", ("Garibaldi", "20121")), ("Lale Sok. No: 45 D:3, 34710 Moda", ("Lale", "45", "34710")),
        ("14 Ashfield Grove\nDublin D6W KT91", ("14", "Ashfield", "KT91")), ("5 Tennyson Gardens, Bristol BS8 1TH", ("Tennyson", "1TH")),
        ("5512 Juniper Ridge, Boise, ID 83703", ("5512", "Juniper", "83703")), ("She moved to LS6 3QS.", ("LS6", "3QS")),
        ("Domicilio: Alameda Verde 9", ("Alameda Verde 9",)), ("ADR;TYPE=home:;;Lindenweg 8;Wien;;1070;Austria", ("Lindenweg", "1070")),
    ],
)  # fmt: skip
def test_addresses_of_many_countries_go(given: str, left: tuple[str, ...]) -> None:
    clean = text(given)
    for piece in left:
        assert piece not in clean


@pytest.mark.parametrize(
    "kept",
    [
        "Page 3, 10115 Total", "Chapter 12, 2024 Edition", "Widget 3\n2024 Report", "retry 3, 50000 Requests", "3 place settings and 2 rue leaves",
        "error B2 3AB1", "via Kafka, 3 brokers",
    ],
)  # fmt: skip
def test_other_lines_with_numbers_stay(kept: str) -> None:
    assert text(kept) == kept


@pytest.mark.parametrize("order", ["Order: 5 clocks.", "What do 8 baskets cost?"])
def test_what_is_told_ends_with_its_sentence(order: str) -> None:
    clean = text(f"Deliver to Theodore Ueda. {order} It is a hotel account.")
    assert clean.endswith(f". {order} It is a hotel account.")


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
        ("Paciente: Octavio Ibarra, 71 años, diabético", "71", "70-79"),
        ("(83 J.) aus Kiel", "83", "80-89"),
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
