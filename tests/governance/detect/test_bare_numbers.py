"""Numbers of JSON that a key tells of; other numbers stay, and numbers stay numbers."""

import json

import pytest

from tests.governance.redaction_support import text, value


@pytest.mark.parametrize(
    ("key", "number"),
    [
        ("contact", 4155550132), ("contact_number", 4155550132), ("whatsapp", 4915112345678), ("caller", 4155550132),
        ("number", 4155550132), ("to", 4155550132), ("account", 88231904772), ("iban", 370400440532013000),
        ("dob", 19840506), ("aadhaar", 234567890124), ("cpf", 52998224725), ("pesel", 44051401359), ("dni", 12345678),
        ("steuer_id", 86095742719), ("bsn", 111222333), ("iban_digits", 370400440532013000), ("ibanNumber", 370400440532013000),
        ("account_digits", 88231904772), ("card_digits", 4012888888881881),
        ("ip", 1366771342), ("client_ip", 1366771342), ("clientIp", 1366771342), ("taxId", 86095742719), ("ipAddress", 3405803778), ("remote_addr", 1366771342),
        ("employee_id", 482913), ("employeeNumber", 482913), ("staff_no", 48291), ("student_id", 482913),
        ("Personalnummer", 482913), ("Matrikelnummer", 4829131),
        ("birth_year", 1984), ("yearOfBirth", 1984), ("dob", 1984), ("born", 1984), ("Geburtsjahr", 1984),
        ("annee_naissance", 1984), ("anno_di_nascita", 1984),
        ("lat", 52.520008), ("lon", -13.404954), ("latitude", 52.5201), ("geo_lng", 13.404954), ("gps", 52.520008),
    ],
)  # fmt: skip
def test_a_number_that_its_key_tells_of_goes(key: str, number: float) -> None:
    assert value({key: number}) == {key: 0}


@pytest.mark.parametrize(
    ("key", "number"),
    [
        ("number", 12345), ("to", 1710147164), ("from", 20240311), ("count", 4155550132), ("contact", 3), ("number", 1710147164),
        ("ip", 3), ("ip", 2130706433), ("ip_version", 1366771342), ("year", 1984), ("published", 1984), ("release_year", 1984),
        ("lat", 52.52), ("lon", 13.4), ("latency", 52.520008), ("score", 0.520008), ("employees", 482913), ("staff", 4829),
    ],
)  # fmt: skip
def test_other_numbers_stay(key: str, number: float) -> None:
    assert value({key: number}) == {key: number}


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("ip", "1366771342"), ("employee_id", "482913"), ("birth_year", "1984"), ("lat", "52.520008"), ("lon", "-13.404954"),
        ("coordinates", "52.520008, 13.404954"), ("location", "52.520008,13.404954"), ("homeLocation", "52.520008, 13.404954"),
    ],
)  # fmt: skip
def test_the_same_goes_where_it_is_a_text(key: str, said: str) -> None:
    assert said not in str(value({key: said}))
    assert said not in text(json.dumps({key: said}))


def test_a_point_on_a_map_goes_as_a_list() -> None:
    assert value({"coordinates": [13.404954, 52.520008]}) == {"coordinates": [0, 0]}
    assert json.loads(text('{"at": {"lat": 52.520008, "lon": -13.404954}}')) == {
        "at": {"lat": 0, "lon": 0}
    }
