"""One person is one subject and one pseudonym, whatever a value stands in and however it is written."""

from functools import cache

import pytest

from governance.policy import load_bundle
from governance.redact import RedactionScope, Redactor, redactor_of, subject_id, subject_ids
from governance.redact.canonical import canonical, forms, forms_of_any, meant
from governance.redact.pseudonym import recorded_ids
from tests.governance.redaction_support import KEY, redactor
from trajectory.message import Message, TextPart

MAIL = "maria.gonzalez@corp-mail.com"
AROUND_MAIL = (
    "write to {}", "<{}>", "mailto:{}", "{}.", "'{}'", '"{}"', "({})", "**{}**", "*{}*", "`{}`",
    "|{}|x|", "| {} |", "email={}", "?user={}&x=1", "https://x.example/u/{}", "to={}, relay=", "user:{}",
    "/{}/", "#{}", "-{}", "{{{}}}", "~{}", "a,{},b", "a;{};b", "{}:8080", "[{}](mailto:{})", "+{}",
    "x@y.example,{}", "name={}|id=3", "'from':'{}'", "key={}\n", "\\n{}", "%20{}", "Maria<{}>", "!{}",
    "$${}", "{}'s mailbox", "{}-old", "&lt;{}&gt;", "mail:{}/inbox", "{}?subject=x", "ftp://{}/x",
    "smtp://{}:25", "_{}_", "to {} now",
)  # fmt: skip
PHONES = (
    "415-555-0132", "(415) 555-0132", "+1 415 555 0132", "415.555.0132", "+14155550132",
    "1-415-555-0132", "415-555-0132 ext. 5", "tel:+1-415-555-0132",
)  # fmt: skip
NAMES = (
    "Leonie Hartwig", "Maria Gonzalez", "Thomas Becker", "Dilnoza Karimova", "Ngozi Okonkwo",
    "Sarah Miller", "Giuseppe Esposito", "Hannelore Brinkmann", "John Smith", "Maria Lopez",
    "Rosalind Okafor", "Tobias Feldmann", "Katarzyna Nowak", "Oluwaseun Adebayo", "Pedro Alvarez",
    "Gerlinde Hasenbichler", "Thandiwe Mbeki", "Anna Kowalska", "Erik Lindqvist", "Claire Dubois",
)  # fmt: skip
INTRODUCED = (
    "I'm {}.", "I\u2019m {}, and I have been diagnosed with lupus.", "Ich bin {}.", "Soy {}.",
    "M. {} a appel\u00e9.", "Dear {},", "Herr {} kommt", "Se\u00f1ora {}", "Mr. {} left", "{}'s order",
)  # fmt: skip
CUES = (
    "I'm", "I am", "It's", "Its", "This is", "My name is", "Name is", "Call me", "Ich bin", "Ich heiße", "Ich heisse",
    "Mein Name ist", "Hier ist", "Je suis", "Je m'appelle", "Je soussigné", "C'est", "Yo soy", "Soy", "Me llamo",
    "Mi nombre es", "Eu sou", "Me chamo", "Meu nome é", "Io sono", "Mi chiamo", "Jestem", "Nazywam się", "Ik ben",
    "Ik heet", "Jag heter", "Jag är", "Jeg er", "Jeg heter", "Dear", "Hi", "Hello", "Hey", "Hallo", "Hola", "Bonjour",
    "Salut", "Ciao", "Olá", "Liebe", "Lieber", "Liebes", "Chère", "Estimado", "Estimada", "Querido", "Querida", "Mr",
    "Mrs", "Ms", "Miss", "Mx", "Madam", "Dr", "Prof", "Professor", "Doctor", "Herr", "Herrn", "Frau", "Señor", "Señora",
    "Señorita", "Senhor", "Senhora", "Sra", "Srta", "Signor", "Signora", "Sig.ra", "Monsieur", "Madame", "Mademoiselle",
    "Mme", "Mlle", "Pani", "Captain", "Sgt", "Sergeant", "Admiral", "Judge", "Attorney", "Nurse", "Uncle", "Aunt",
    "Rabbi", "Senator", "Coach", "Officer", "Detective", "Mevrouw", "Mevr", "Meneer", "Sayın", "Sayin", "Onkel",
    "Tante", "Maître", "Kollege", "Kollegin", "Customer", "Patient", "Client", "Contact", "Cliente", "Kunde", "Kundin",
    "Patientin", "Attn", "User", "Name", "From", "Im", "Cher", "Sono", "Sou", "Rev", "Hon", "El", "La", "Don", "Doña",
    "Dona", "Dom", "Sir", "Lord", "Lady", "M", "Sr", "Sig", "Pan", "St", "Best", "Thanks", "Gruß", "Grüße", "VG", "LG",
    "By", "With", "And",
)  # fmt: skip


@cache
def _default() -> Redactor:
    return redactor_of(load_bundle(), pseudonym_key=KEY)


def _redacted(text: str, by: Redactor) -> tuple[str, tuple[str, ...]]:
    scope = RedactionScope("acme", text)
    (done,) = by.redact_messages([Message("user", (TextPart(text),))], scope=scope)
    return done.message.text(), done.subjects


@pytest.mark.parametrize("around", AROUND_MAIL)
def test_a_mail_address_is_one_subject_whatever_stands_around_it(around: str) -> None:
    mark, _ = _redacted(MAIL, redactor())
    said = around.replace("{}", MAIL).replace("{{", "{").replace("}}", "}")
    text, subjects = _redacted(said, redactor())
    assert subject_id(KEY, "acme", MAIL) in subjects
    assert mark in text
    assert MAIL not in text


@pytest.mark.parametrize(
    "spelled", [MAIL.upper(), MAIL.replace("@", "%40"), MAIL.replace("@", "\uff20")]
)
def test_a_mail_address_is_one_subject_however_it_is_spelled(spelled: str) -> None:
    assert _redacted(spelled, redactor()) == _redacted(MAIL, redactor())


@pytest.mark.parametrize("spelled", PHONES)
def test_a_phone_is_one_subject_however_it_is_spelled(spelled: str) -> None:
    text, subjects = _redacted(f"call {spelled}", redactor())
    first, _ = _redacted(f"call {PHONES[0]}", redactor())
    assert text.removeprefix("call ").removeprefix("tel:") == first.removeprefix("call ")
    for asked in PHONES:
        assert set(subjects) & set(subject_ids(KEY, "acme", asked)), asked


def test_phones_of_two_countries_are_two_subjects() -> None:
    _, german = _redacted("call +49 30 901820", redactor())
    _, italian = _redacted("call +39 30 901820", redactor())
    assert not set(german) & set(italian)
    assert set(german) & set(subject_ids(KEY, "acme", "+49 (0)30 901820"))
    assert not set(german) & set(subject_ids(KEY, "acme", "+39 30 901820"))


@pytest.mark.parametrize("said", INTRODUCED)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_subject_without_what_leads_to_it(said: str, name: str) -> None:
    mark, _ = _redacted(f"My name is {name}", _default())
    text, subjects = _redacted(said.format(name), _default())
    assert subjects == (subject_id(KEY, "acme", name),)
    assert mark.removeprefix("My name is ") in text


@pytest.mark.parametrize("cue", CUES)
@pytest.mark.parametrize("name", ["Leonie Hartwig", "Léonie Hartwig"])
def test_a_name_is_meant_without_the_cue_before_it(cue: str, name: str) -> None:
    for said in (cue, cue.lower(), cue.upper() if "ß" not in cue else cue):
        for mark in (" ", ".", ". ", ": ", ", "):
            assert meant("PERSON", f"{said}{mark}{name}") == name


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("HARTWIG, LEONIE", "Leonie Hartwig"),
        ("Leonie****Hartwig", "Leonie Hartwig"),
        ("Leonie** **Hartwig", "Leonie Hartwig"),
        ("Leonie+Hartwig", "Leonie Hartwig"),
        ("leonie  hartwig", "Leonie Hartwig"),
        ("Mar\u00eda Gonz\u00e1lez", "Maria Gonzalez"),
        ("\u0141ukasz N\u00f8rgaard", "Lukasz Norgaard"),
        ("Frau Dr. Leonie Hartwig", "Leonie Hartwig"),
        ("J. R. Smith", "J R Smith"),
        ("\u738b \u5c0f\u660e", "\u738b\u5c0f\u660e"),
        ("van der Berg, Jan", "Jan van der Berg"),
    ],
)
def test_spellings_of_a_name_agree(written: str, name: str) -> None:
    assert canonical("PERSON", written) == canonical("PERSON", name)


@pytest.mark.parametrize(
    "name",
    [
        "Don Johnson",
        "Im Yoona",
        "Max Weber",
        "Lady Gaga",
        "M. Becker",
        "Sarah O'Brien",
        "Cher Wang",
        "Sono Osato",
        "El Sr",
    ],
)
def test_what_may_be_part_of_a_name_stays(name: str) -> None:
    assert meant("PERSON", name) == name


def test_what_earlier_versions_kept_is_still_asked_for() -> None:
    assert "mar\u00eda gonz\u00e1lez" in forms_of_any("Mar\u00eda Gonz\u00e1lez")
    assert {"14155550132", "4155550132"} <= set(forms_of_any("+1 415 555 0132"))
    assert "03090182" in forms_of_any("030 / 90182")
    assert "user_17" in forms_of_any("user_17")
    assert "536228914" in forms_of_any("536-22-8914")


@pytest.mark.parametrize(
    ("said", "on_the_wire"),
    [
        ("m@b\u00fccher.example", "m@xn--bcher-kva.example"),
        ("M@B\u00dcCHER.example", "m@XN--BCHER-KVA.example"),
        ("jo@post.m\u00fcnchen.de", "jo@post.xn--mnchen-3ya.de"),
        ("m@stra\u00dfe.de", "m@xn--strae-oqa.de"),
    ],
)
def test_a_domain_and_its_punycode_are_one_mail_address(said: str, on_the_wire: str) -> None:
    assert canonical("EMAIL_ADDRESS", said) == canonical("EMAIL_ADDRESS", on_the_wire)
    key = b"k" * 32
    assert subject_ids(key, "acme", said)[0] == subject_ids(key, "acme", on_the_wire)[0]
    earlier = on_the_wire.casefold()  # as earlier rows name it
    for one in (said, on_the_wire):
        assert earlier in forms("EMAIL_ADDRESS", one)
        assert earlier in forms_of_any(one)


@pytest.mark.parametrize("mail", ["jo@corp.io", "jo@xn--.example", "jo@xn--99999999999.example"])
def test_other_domains_have_one_form(mail: str) -> None:
    assert forms("EMAIL_ADDRESS", mail) == (mail,)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Write to j\u00fcrgen@b\u00fccher.example now", "ju\u0308rgen@bu\u0308cher.example"),
        ("Write to ju\u0308rgen@bu\u0308cher.example now", "j\u00fcrgen@b\u00fccher.example"),
        ("Write to maria.gonzalez+news@corp-mail.com now", "maria.gonzalez@corp-mail.com"),
        ("My name is Leonie  Hartwig and I ask.", "Leonie Hartwig"),
        ("My name is Leonie\nHartwig and I ask.", "Leonie Hartwig"),
        ("My name is Leonie\tHartwig and I ask.", "Leonie Hartwig"),
        ("My name is Hartwig, Leonie and I ask.", "Leonie Hartwig"),
        ("My name is Leonie Hartwig.", "\u201cLeonie Hartwig\u201d"),
        ("My name is Leonie Hartwig.", "\u00abLeonie Hartwig\u00bb"),
        ("My name is Leonie Hartwig.", "\ufeffLeonie\u200b Hartwig\r"),
        ("My name is LeonieHartwig and I ask.", "Leonie Hartwig"),
        ("My name is J\u00fcrgen M\u00fcller.", "Juergen Mueller"),
        ("My name is Juergen Mueller.", "J\u00fcrgen M\u00fcller"),
        ("My name is J\u00fcrgen M\u00fcller.", "Jurgen Muller"),
        ("My name is J\u00fcrgen Hans M\u00fcller.", "Juergen Mueller"),
        ("My name is Juergen Mueller.", "J\u00fcrgen Mueller"),
        ("My name is Rosalind Okafor-Brandt.", "Rosalind Okafor Brandt"),
        ("My name is Rosalind Okafor Brandt.", "Rosalind Okafor-Brandt"),
        ("My name is Rosalind O\u00b4Connor.", "Rosalind O'Connor"),
        ("GET /search?name=J%C3%BCrgen+M%C3%BCller", "J\u00fcrgen M\u00fcller"),
        ("Dear J=C3=BCrgen M=C3=BCller,", "J\u00fcrgen M\u00fcller"),
        ("To: =?utf-8?q?J=C3=BCrgen_M=C3=BCller?= <team@corp-mail.com>", "J\u00fcrgen M\u00fcller"),
        ("name = b'J\\xc3\\xbcrgen M\\xc3\\xbcller'", "J\u00fcrgen M\u00fcller"),
    ],
)
def test_a_person_is_found_by_other_ways_of_writing(said: str, asked: str) -> None:
    _, subjects = _redacted(said, _default())
    assert {*subjects} & {*subject_ids(KEY, "acme", asked)}


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Write to maria.gonzalez@corp-mail.com now", "maria.gonzalez+news@corp-mail.com"),
        ("My name is Leonie Hartwig.", "Leonie Hartmann"),
        ("My name is Leonie.", "nurse_leonie"),
        ("My name is Michal Nowak.", "Michael Nowak"),
        ("My name is Michael Nowak.", "Michal Nowak"),
    ],
)
def test_others_are_not_found(said: str, asked: str) -> None:
    _, subjects = _redacted(said, _default())
    assert not {*subjects} & {*subject_ids(KEY, "acme", asked)}


@pytest.mark.parametrize(
    ("recorded", "asked"),
    [
        ("J\u00fcrgen", "juergen"),
        ("juergen", "J\u00fcrgen"),
        ("mr.bob", "MR.BOB"),
        ("020-7946-0958", "02079460958"),
        ("555-0132", "5550132"),
        ("415-5550132", "+1 415 555 0132"),
        ("DE89 3704 0044 0532 0130 00", "DE89370400440532013000"),
        ("0b9f4e0c-1d2a-4c3b-8a5d-6e7f80910213", "0b9f4e0c1d2a4c3b8a5d6e7f80910213"),
        ("0A:1b:2c:3d:4e:56", "0a-1b-2c-3d-4e-56"),
        ("4155550132:12@s.whatsapp.net", "4155550132@s.whatsapp.net"),
        ("4155550132@s.whatsapp.net", "4155550132:3@s.whatsapp.net"),
    ],
)
def test_a_user_is_found_by_other_ways_of_writing_the_id(recorded: str, asked: str) -> None:
    assert {*recorded_ids(KEY, "acme", recorded)} & {*subject_ids(KEY, "acme", asked)}


@pytest.mark.parametrize(
    ("recorded", "asked"),
    [
        ("4155550132:12@s.whatsapp.net", "4155550133:12@s.whatsapp.net"),
        ("org:1234:5678", "org:123:45678"),
        ("1234567#12", "1234567#13"),
    ],
)
def test_another_user_is_not_found_by_an_id(recorded: str, asked: str) -> None:
    assert not {*recorded_ids(KEY, "acme", recorded)} & {*subject_ids(KEY, "acme", asked)}
