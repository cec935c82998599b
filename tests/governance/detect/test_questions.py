"""A question in one message, its answer in the next."""

import pytest

from governance.detect.questions import key_of_answer, last_sentence
from tests.governance.redaction_support import SCOPE, redactor
from trajectory.message import Message, TextPart


def said(*turns: str) -> list[str]:
    """Return what is left of a conversation."""
    roles = ("assistant", "user")
    messages = [Message(roles[i % 2], (TextPart(turn),)) for i, turn in enumerate(turns)]
    return [one.message.text() for one in redactor().redact_messages(messages, scope=SCOPE)]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("And your surname?", "Quibodeau"), ("What is your last name?", "quibodeau"), ("Thanks. Who am I speaking with?", "Maëlys Quibodeau"),
        ("Your name?", "Sure, Quibodeau"), ("Whose account is it?", "Quibodeau's"), ("Name of the account holder?", "QUIBODEAU"),
        ("Und Ihr Nachname?", "Quibodeau"), ("Wie heißen Sie?", "Quibodeau"), ("Votre nom de famille ?", "Quibodeau"), ("¿Y su apellido?", "Quibodeau"),
        ("Il suo cognome?", "Quibodeau"), ("E o apelido?", "Quibodeau"), ("En uw achternaam?", "Quibodeau"), ("Proszę podać nazwisko.", "Quibodeau"),
        ("And the password?", "quibodeau77"), ("Please enter your username.", "m.quibodeau"),
    ],
)  # fmt: skip
def test_an_answer_goes_by_its_question(question: str, answer: str) -> None:
    assert "quibodeau" not in said(question, answer)[1].lower()


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is your name?", "I'd rather not say."), ("Your name?", "Why do you ask?"), ("And the password?", "I forgot it"), ("What should I call the file?", "Quarterly"),
        ("What is the name of the service?", "Billing"), ("Wie heißt die Datei?", "Bericht"), ("¿Cómo se llama el archivo?", "Informe"), ("Which branch?", "Main"),
    ],
)  # fmt: skip
def test_what_answers_nothing_of_a_person_stays(question: str, answer: str) -> None:
    assert said(question, answer) == [question, answer]


def test_a_name_that_was_answered_goes_from_what_follows() -> None:
    assert "Quibodeau" not in "".join(
        said("Your surname?", "Quibodeau", "Thank you, Ms Quibodeau.")
    )


def test_the_report_names_the_place_of_the_answer_as_any_text() -> None:
    messages = [
        Message("assistant", (TextPart("Your surname?"),)),
        Message("user", (TextPart("Quibodeau"),)),
    ]
    done = redactor().redact_messages(messages, scope=SCOPE)[1]
    assert [place.path for place in done.report.places] == ["/parts/0/text"]


def test_births_phones_and_addresses_are_answers() -> None:
    assert key_of_answer("Date of birth?", "27.03.1993") == "date_of_birth"
    assert key_of_answer("What is your phone number?", "0151 2345678") == "phone"
    assert key_of_answer("Your address, please?", "12 Foxglove Lane") == "address"
    assert key_of_answer("How many?", "12") is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Thanks! And your surname?", "And your surname?"),
        ("Your name: ", "Your name:"),
        ("One.\nTwo", "Two"),
        ("好。您的姓名？", "您的姓名？"),
        ("ab" * 200 + "?!", "ab" * 80 + "?!"),
        ("?! ", "?!"),
        ("", ""),
    ],
)
def test_the_last_sentence_keeps_its_marks(text: str, sentence: str) -> None:
    assert last_sentence(text) == sentence
