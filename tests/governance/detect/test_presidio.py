"""Presidio's registry on RE2: what is found, with its checks and its context."""

from pathlib import Path

import pytest

from governance.detect.finding import Unit
from governance.detect.normalized_text import view_of
from governance.detect.presidio import PresidioDetector, WordNlpEngine, registry
from governance.policy.redaction import DEFAULT_ENTITIES
from tests.governance.redaction_support import made, text
from trajectory.errors import ConfigurationError

ENTITIES = frozenset(DEFAULT_ENTITIES)
DETECTOR = PresidioDetector(registry(ENTITIES))


def found(value: str, *keys: str) -> dict[str, str]:
    """Return entity to text for what scores at least 0.4."""
    (findings,) = DETECTOR.find([Unit(view_of(value), keys)])
    return {f.entity: value[f.start : f.end] for f in findings if f.score >= 0.4}


@pytest.mark.parametrize(
    ("entity", "value", "sentence"),
    [
        ("EMAIL_ADDRESS", "jane.doe@example.com", "write to {}."),
        ("EMAIL_ADDRESS", "jane@müller.example", "mail {} now"),
        ("EMAIL_ADDRESS", "john at mail . example dot com", "email {} please"),
        ("EMAIL_ADDRESS", "beata dot quibo at mail dot example", "my email is {} please"),
        ("EMAIL_ADDRESS", "beata punkt quibo at mail punkt de", "schreib an {} bitte"),
        ("EMAIL_ADDRESS", "beata point quibo arobase mail point fr", "écris à {} stp"),
        ("EMAIL_ADDRESS", "john [at] mail.example.com", "email {} please"),
        ("EMAIL_ADDRESS", "jane.doe(at)mail(dot)com", "{}"),
        ("EMAIL_ADDRESS", "jane [at] mail-host.com", "{}"),
        ("EMAIL_ADDRESS", "jane.doe at mail dot com", "so it is {} then"),
        ("EMAIL_ADDRESS", "jdoe AT gmail DOT com", "{}"),
        ("EMAIL_ADDRESS", '"jane.doe"@mail.example.com', "write to {} now"),
        ("EMAIL_ADDRESS", "jane.doe@mail\u3002example\u3002com", "write to {} now"),
        ("PHONE_NUMBER", "+1 212 555 0123", "Call me on {}."),
        ("PHONE_NUMBER", "(201) 555-0123", "Tel. {}."),
        ("PHONE_NUMBER", "2125550123", "my phone is {}"),
        ("CREDIT_CARD", "4242 4242 4242 4242", "Charge {} for it."),
        ("CREDIT_CARD", "378282246310005", "amex {}"),
        ("CREDIT_CARD", "4111111111111111", "card LIKE '%{}%'"),
        ("IBAN_CODE", "DE89370400440532013000", "to {} 2 days ago"),
        ("IBAN_CODE", "GB82 WEST 1234 5698 7654 32", "IBAN {}"),
        ("US_SSN", "123-45-6788", "it is {}"),
        ("US_SSN", "123456788", "my ssn is {}"),
        ("IP_ADDRESS", "203.0.113.9", "from {} again"),
        ("IP_ADDRESS", "2001:db8::8a2e:370:7334", "from {} again"),
        ("MAC_ADDRESS", "00:1A:2B:3C:4D:5E", "card {}"),
        ("CRYPTO", "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2", "wallet {}"),
        ("US_PASSPORT", "912803456", "passport {}"),
        ("STREET_ADDRESS", "6750 Maple Street Apt. 4", "I live at {}"),
        ("STREET_ADDRESS", "Váci utca 12", "lakcím: {}, Budapest"),
        ("STREET_ADDRESS", "Kossuth Lajos tér 3", "{}, Szeged"),
        ("STREET_ADDRESS", "C/ Mayor 5", "vive en {}, Madrid"),
        ("DATE_OF_BIRTH", "12/03/1980", "DOB: {}"),
        ("DATE_OF_BIRTH", "14/03/1971", "Nato a San Benedetto il {}"),
        ("DATE_OF_BIRTH", "07.12.1959", "geboren in Kassel am {}"),
        ("DATE_OF_BIRTH", "07.12.1959", "Sie ist am {} in Kassel geboren."),
        ("DATE_OF_BIRTH", "7.12.59", "Vater, geb. {}"),
        ("DATE_OF_BIRTH", "1990-03-08", "dob              | {}"),
        ("DATE_OF_BIRTH", "1990-03-08", "<Born>{}</Born>"),
        ("DATE_OF_BIRTH", "8 marzo 1990", "data di nascita, il {}"),
        ("DATE_OF_BIRTH", "2010-11-30", '{{"classe":"2A","nato":"{}"}} {{'),
        ("DATE_OF_BIRTH", "17. 4. 1988", "soused (nar. {}, Brno)"),
        ("DATE_OF_BIRTH", "3.5.1921", "Müller, * {}, oo 1944"),
        ("DATE_OF_BIRTH", "2016-02-01", "two kids (b. {})"),
        ("DATE_OF_BIRTH", "12-4-2009", "De geboortedatum in de lijst klopt niet, moet {} zijn"),
        ("DATE_OF_BIRTH", "14 feb 1980", "agent: Date of birth, please.\ncaller: {}, thanks"),
        ("DATE_OF_BIRTH", "ninth of may sixty two", "bot: Your date of birth?\nuser: {}"),
        ("PHONE_NUMBER", "918 330 000", "Contacto: {}"),
        ("MEDICAL_RECORD", "A-128837", "MRN: {}"),
        ("MEDICAL_RECORD", "55-91-20", "chart no. {}"),
        ("MEDICAL_RECORD", "482913", "MR# {}"),
        ("MEDICAL_RECORD", "48-29-13", "med. rec. no {}"),
        ("MEDICAL_RECORD", "5519203", "pt id {}"),
        ("MEDICAL_RECORD", "5519203", "pt. no. {}"),
        ("US_SSN", "9998", "ssn ending in {}"),
        ("US_SSN", "9998", "last four of her social: {}"),
        ("USERNAME", "rosalind_runs", "instagram @{}"),
        ("VEHICLE_ID", "BXR 2291", "tag number {}"),
        ("DEVICE_ID", "PXK604329", "ser. no. {}"),
        ("DEVICE_ID", "PXK604329", "ser no {}"),
        ("HEALTH_PLAN", "1EG4-TE5-MK73", "we have {} on file"),
        ("HEALTH_PLAN", "HX-99120-33", "policy number {}"),
        ("LICENSE_NUMBER", "RN-204418", "nursing licence {}"),
        ("MEDICAL_LICENSE", "1234567893", "NPI {}"),
        ("DEVICE_ID", "(01)00844588003288(21)A23X", "UDI {}"),
        ("USERNAME", "u_88213", "user id {} asks"),
    ],
)
def test_identifiers(entity: str, value: str, sentence: str) -> None:
    assert found(sentence.format(value))[entity] == value


@pytest.mark.parametrize(
    "harmless",
    [
        "order 4242424242424241 of 12 lamps",
        "epoch 1700000000 and 1700000000123",
        "0.1234567890123 and -0.0348512349",
        "self.bot and std::dec and a::b",
        "bound to 127.0.0.1 and 0.0.0.0",
        "license: MIT, certificate of 2024, serial 2024010101, policy id 12",
        "NPI 1234567890",
        "version 1.2.3 of 2024-05-01 at 10:20:30",
        "id 0123456789 of batch 7",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "uuid 123e4567-e89b-12d3-a456-426614174000",
        "max_tokens=4096, token_count: 12345678",
        "the total is 1,234,567.89 EUR",
        "chatcmpl-AbCdEfGhIjKlMnOpQrStUvWxYz123456",
        "toolu_01A09q90qw90lq917835lq9",
    ],
)
def test_numbers_ids_and_code_stay(harmless: str) -> None:
    assert text(harmless) == harmless


def test_a_card_between_other_numbers_is_found_alone() -> None:
    assert found("12 4242 4242 4242 4242 31")["CREDIT_CARD"] == "4242 4242 4242 4242"


def test_the_key_path_is_context() -> None:
    assert "PHONE_NUMBER" not in found("2125550123")
    assert found("2125550123", "customer", "mobilePhone")["PHONE_NUMBER"] == "2125550123"


def test_recognisers_of_policy_join(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        "recognizers:\n"
        "  - name: Badge\n"
        "    supported_entity: BADGE\n"
        "    supported_language: en\n"
        "    patterns:\n"
        "      - {name: badge, regex: '(?<![A-Z])BDG-[0-9]{4}', score: 0.8}\n",
        encoding="utf-8",
    )
    redactor = made(recognizers=[str(file)], entities={"BADGE": "drop"})
    from tests.governance.redaction_support import SCOPE

    assert redactor.redact_text("badge BDG-1234 ok", scope=SCOPE).text == "badge <BADGE> ok"


def test_an_entity_without_detector_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match="UNICORN"):
        made(entities={"UNICORN": "drop"})


def test_a_missing_file_of_recognisers_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gone\.yaml"):
        made(recognizers=[str(tmp_path / "gone.yaml")])


def test_presidios_own_engine_runs_the_registry_too() -> None:
    from presidio_analyzer import AnalyzerEngine

    sentence = "Write to jane%40example.com or call +1 212 555 0123 about card 4242424242424242"
    engine = AnalyzerEngine(
        registry=registry(ENTITIES), nlp_engine=WordNlpEngine(), supported_languages=["en"]
    )
    results = engine.analyze(sentence, "en")
    assert {r.entity_type: sentence[r.start : r.end] for r in results if r.score > 0.5} == {
        "EMAIL_ADDRESS": "jane%40example.com",
        "PHONE_NUMBER": "+1 212 555 0123",
        "CREDIT_CARD": "4242424242424242",
    }


@pytest.mark.parametrize("date", ["05-MAR-21", "5/6/21", "5.6.21", "MAR-2021", "2021-05-06"])
def test_dates_need_no_run_of_digits(date: str) -> None:
    (findings,) = PresidioDetector(registry(frozenset({"DATE_TIME"}))).find(
        [Unit(view_of(f"due on {date}"))]
    )
    assert any(f.entity == "DATE_TIME" and f.score >= 0.5 for f in findings)
