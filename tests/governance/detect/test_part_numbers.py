"""Digits of goods and of dumps of bytes stay; the same digits of people go."""

from functools import cache

import pytest

from governance.policy.redaction import RedactionSpec
from governance.redact import Redactor, build_redactor
from tests.governance.redaction_support import KEY, SCOPE


@cache
def _redactor() -> Redactor:
    return build_redactor(RedactionSpec(), pseudonym_key=KEY)


def _after(given: str) -> str:
    return _redactor().redact_text(given, scope=SCOPE).text


@pytest.mark.parametrize(
    "kept",
    [
        "Pos  Art.-Nr.       Bezeichnung     Menge\n10   0711-4432-90   Kugelhahn       12",
        "Item  Qty  P/N           Description\n1     4    219-09-1187   Bracket",
        "Réf.            Désignation     Qté\n06-22-41-18-90  Joint torique   20",
        "Part no. 512-30-7741 is back-ordered; ref 555-19-0042.",
        "Reservdel nr 0711-2233-10",
        "00000000  4d 5a 90 00 03 00 00 00  04 00 00 00 ff ff 00 00\n00000010  45 39 14 88 03 43 64 67  41 11 11 11 11 11 11 11",
        "00000010: 0200 2800 0100 0000 3501 0008 3400 0000  ..(.\n00000020: 58a1 0300 0002 0005 3400 2000 0300 2800  X...",
    ],
)  # fmt: skip
def test_numbers_of_goods_and_dumps_of_bytes_stay(kept: str) -> None:
    assert _after(kept) == kept


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("SSN 219-09-1187", "219-09-1187"), ("Her number is 219-09-1187.", "219-09-1187"), ("Card 4111 1111 1111 1111", "4111 1111 1111 1111"),
        ("name;ref;phone\nAda Lovell;7;0711 4432 901\n", "0711 4432 901"), ("Ref 7 - Tel. 0711 4432 901", "0711 4432 901"),
        ("1234 4111 1111 1111 1111 was charged", "4111 1111 1111 1111"),
    ],
)  # fmt: skip
def test_the_same_digits_of_people_go(given: str, value: str) -> None:
    assert value not in _after(given)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("call us back on oh one two two five five five five oh one nine thanks", "five five five"),
        ("meine nummer ist null eins sieben sechs vier vier zwei eins neun null drei danke", "vier vier"),
        ("llámeme al seis uno uno nueve cero dos siete cuatro tres por favor", "nueve cero"),
        ("my mobile is double oh seven nine double one two three four", "seven nine"),
        ("chiamate il vivaista, Evaristo Colantuoni, al 333 7102 958", "333 7102 958"),
        ("Bizum para la pista al 611 90 27 43, 4 € cada una", "611 90 27 43"),
        ("Appelez directement le gardien au 06 12 47 90 33", "06 12 47 90 33"),
        ("Contacto: 918 330 274", "918 330 274"), ("Pårørende: 922 41 807", "922 41 807"),
        ("+34 611 90 27 43: hola\nnos vemos; 611 90 27 43", "611 90 27 43"),
    ],
)  # fmt: skip
def test_phone_numbers_go_that_are_said_asked_for_or_met_again(given: str, value: str) -> None:
    assert value not in _after(given)


@pytest.mark.parametrize(
    "kept",
    [
        "one two three four five six seven eight nine ten", "zero one two three four five six seven eight nine", "null fünf null", "five or six, seven or eight",
        "call the handler at 12345678",
    ],
)  # fmt: skip
def test_counting_is_no_number(kept: str) -> None:
    assert _after(kept) == kept


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("birth_date: Sat, 04 Jan 1992,", "04 Jan 1992"), ("<Patient born=Tue, 14 Mar 1967>", "14 Mar 1967"), ("Född: 12.04.1979", "12.04.1979"),
        ("last_sign_in_ip: #<IPAddr: IPv4:24.48.117.6/255.255.255.255>", "24.48.117.6"),
        ("mot de passe provisoire fixé à « Printemps!Sel42 », à changer", "Printemps!Sel42"),
        ("Kennwort vorläufig gesetzt auf „Birke#2041x“, bitte ändern", "Birke#2041x"),
        ('admin_username    = "x"\nadmin_password    = "Moosgrün#7781!tal"', "Moosgrün#7781!tal"),
        ("**hwkang-dev** commented 40 minutes ago", "hwkang-dev"), ("@jvandermerwe had the same comment", "jvandermerwe"),
        ("İnceleyen: tcankurtaran\n", "tcankurtaran"), ("Recenzent: mdabrowna\n", "mdabrowna"),
    ],
)  # fmt: skip
def test_values_of_consoles_tickets_and_reviews_go(given: str, value: str) -> None:
    assert value not in _after(given)
