"""Names by what stands around them."""

import pytest

from governance.detect.finding import Unit
from governance.detect.names.key_names import names_a_person
from governance.detect.names.rules import NameRules
from governance.detect.normalized_text import view_of
from tests.governance.redaction_support import SCOPE, redactor, text, value
from trajectory.message import Message


@pytest.mark.parametrize(
    ("sentence", "name"),
    [
        ("Hello, my name is {}.", "Thandiwe Mbeki"),
        ("Hi, this is {} again.", "Zoltán Szabó"),
        ("Regards,\n{}", "Łukasz Błaszczyk"),
        ("Thank you\n{}", "Xuefei Qin"),
        ("Best wishes, {}", "Zoë Müller"),
        ("{} asked me to order this.", "Ruaridh Quispe"),
        ("Deliver to {}.", "Xi Vandenberg"),
        ("The invoice goes to {}.", "Saoirse O'Brien"),
        ("{} will sign for it.", "Ngozi Okonkwo"),
        ("Customer: {}\nOrder: 12", "Adaeze Tkachenko"),
        ("Contact person: {}", "Renée Sjöberg"),
        ("Dear Mr. {}, thanks", "Abernathy"),
        ("From: {} <x@example.com>", "Brunhilde Katz"),
        ("I met Dr. {} yesterday", "J. R. Haverford"),
        ("cc {}", "María de la Cruz"),
    ],
)
def test_names_in_context(sentence: str, name: str) -> None:
    clean = text(sentence.format(name))
    assert "<PERSON_" in clean
    for part in name.split():
        if len(part) > 3:
            assert part not in clean


@pytest.mark.parametrize(
    "sentence",
    [
        "Good morning,\nPlease quote 12 lamps for our Premium account.",
        "Dear Team, hello World",
        "This is Python code.",
        "Order: 5 Desk Lamps, Gold account.",
        "I am Sure. Thank You",
        "From: Monday To: Friday",
        "Contact Support or call Sales.",
        '{"name": "get_quote", "item": "Lamp"}',
    ],
)
def test_what_is_no_name_stays(sentence: str) -> None:
    assert text(sentence) == sentence


def test_key_paths_name_people() -> None:
    clean = value({"customer": {"name": "lin xu"}, "item": {"name": "Desk Lamp"}})
    assert isinstance(clean, dict)
    assert clean["customer"] != {"name": "lin xu"}
    assert clean["item"] == {"name": "Desk Lamp"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("customer", "name"), True),
        (("customerName",), True),
        (("first_name",), True),
        (("tool", "name"), False),
        (("item", "name"), False),
        (("name",), False),
        (("filename",), False),
    ],
)
def test_which_keys_name_people(path: tuple[str, ...], expected: bool) -> None:
    assert names_a_person(path) is expected


@pytest.mark.parametrize("name", ["Alice_Smith", "alice", "bob42", "JaneDoe", "Jürgen Müller"])
def test_a_participant_that_is_somebody_is_redacted(name: str) -> None:
    (clean,) = redactor().redact_messages([Message("user", (), name)], scope=SCOPE)
    assert clean.message.name is not None
    assert clean.message.name.startswith("<PERSON_")
    assert [place.path for place in clean.report.places] == ["/participant/name"]


@pytest.mark.parametrize("name", ["planner", "user_proxy", "Engineer", "research-agent", "chat"])
def test_a_participant_that_is_a_role_stays(name: str) -> None:
    (clean,) = redactor().redact_messages([Message("user", (), name)], scope=SCOPE)
    assert clean.message.name == name


@pytest.mark.parametrize("name", ["Émilie", "ÉMILIE", "Łukasz", "Maria"])
def test_a_listed_given_name_alone_is_found_with_accents_too(name: str) -> None:
    (found,) = NameRules().find([Unit(view_of(name))])
    assert [(one.entity, one.start, one.end) for one in found] == [("PERSON", 0, len(name))]


@pytest.mark.parametrize("word", ["Éclair", "Ärger", "Москва", "Zürich", "Ötzi"])
def test_a_word_alone_that_is_no_given_name_is_none(word: str) -> None:
    assert NameRules().find([Unit(view_of(word))]) == [[]]
