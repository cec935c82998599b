"""Phone numbers by shape, metadata and context."""

import pytest

from governance.detect.gate import Gate
from governance.detect.normalized_text import view_of
from governance.detect.phones import PhoneRunner

RUNNER = PhoneRunner()


def found(text: str) -> list[str]:
    view = view_of(text)
    spans = (view.span(hit.start, hit.end) for hit in RUNNER.run(Gate(view), ()))
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("+1 212 555 0123 is mine", "+1 212 555 0123"),
        ("(+44 20 7946 0123)", "+44 20 7946 0123"),
        ("+33 1 99 00 12 34.", "+33 1 99 00 12 34"),
        ("+41 (0)96 471 07 95", "+41 (0)96 471 07 95"),
        ("001-212-555-0123 x", "001-212-555-0123"),
        ("212-555-0123", "212-555-0123"),
        ("(212) 555-0123 ext. 45", "(212) 555-0123 ext. 45"),
        ("020 7946 0018 in London", "020 7946 0018"),
        ("call me on 450 0840", "450 0840"),
        ("Phone: 60-56-85-91", "60-56-85-91"),
        ("tlf. 22 43 84 59", "22 43 84 59"),
        ("Wien 01 512 88 40", "01 512 88 40"),
        ("Zürich 044 271 55 09", "044 271 55 09"),
        ("Seoul 010-7734-2208", "010-7734-2208"),
        ("mobile 0494 92 82 32", "0494 92 82 32"),
        ("655 437 108 office", "655 437 108"),
        ("here: 2 1 2 5 5 5 0 1 2 3.", "2 1 2 5 5 5 0 1 2 3"),
        ("2-1-2-5-5-5-0-1-2-3", "2-1-2-5-5-5-0-1-2-3"),
        ("0 2 0 7 9 4 6 0 0 1 8", "0 2 0 7 9 4 6 0 0 1 8"),
        ("phone LIKE '%4155550132%'", "4155550132"),
        ('phone like "%2025550132"', "2025550132"),
        ("tel LIKE '415-555-0132%'", "415-555-0132"),
        ("%415-555-0132%", "415-555-0132"),
    ],
)
def test_numbers(text: str, number: str) -> None:
    assert found(text) == [number]


@pytest.mark.parametrize(
    "text",
    [
        "2024-05-01 10:20:30",
        "01/05/2024 and 1.5.2024",
        "1700000000",
        "0.123456789",
        "1557.96930",
        "00010203-0405-0607-0809-0a0b0c0d0e0f",
        "12 34 56 78 90 12 34 56 78",
        "version 1.22.333.4444",
        "$2125550123",
        "id=2125550123",
        "1, 2, 3, 4, 5, 6, 7, 8, 9, 10",
        "1 2 3 4 5 6 7 8 9 0",
        "2 4 6 8 0 2 4 6 8 0",
        "0 1 0 0 1 1 1 0 0 1",
        "2 2 2 3 3 3 2 2 2 3",
        "3 1 4 1 5 9 2 6 5 3 5 8 9 7 9 3",
    ],
)
def test_other_numbers(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    "asked",
    [
        "Call me on {}", "text me at {}", "Proszę dzwonić: {}", "Zavolejte mi na {}", "Llámame al {}", "appelez-moi au {}",
        "Ruf mich an unter {}", "bel me op {}", "Chiamami al {}", "ligue para {}", "Llama a Remedios al {}", "Call Mr. Fenn on {}", "Ruf Heike an: {}", "appelle Odile au {}", "Proszę oddzwonić: {}", "Ring mig på {}", "Puede llamarle al {}", "vous pouvez le joindre au {}", "Può chiamarlo al {}", "pode ligar-lhe para o {}", "erreichen Sie ihn unter {}", "मोबाइल {}", "мой номер {}", "মোবাইল: {}", "موبائل {}", "Soita numeroon {}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("number", ["612345678", "602 441 229"])
def test_digits_behind_a_request_to_call_are_a_number(asked: str, number: str) -> None:
    assert len(found(asked.replace("{}", number))) == 1


@pytest.mark.parametrize(
    "kept",
    [
        "call 612345678 failed",
        "call the handler at 12345678",
        "calls: 612345678",
        "dial timeout 12345678",
    ],
)
def test_digits_behind_other_calls_are_none(kept: str) -> None:
    assert found(kept) == []
