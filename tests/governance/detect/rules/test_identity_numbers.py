"""Identity numbers of many countries: by check digits, by what they are called, and by their keys."""

import random
import re
from pathlib import Path

import phonenumbers
import pytest

from benchmarks.agent_texts_values import NUMBERS
from governance.data_classes import data_classes
from governance.detect.rules.identity_checks import CHECKS
from governance.detect.rules.identity_numbers import table
from governance.policy import load_bundle
from governance.redact import Redactor, redactor_of
from governance.redact.subject_keys import MemorySubjectKeys
from tests.governance.redaction_support import KEY, SCOPE, text, value

ROOT = Path(__file__).parents[4]

_SAME = {
    "cn_ric": "cn_resident", "kr_rrn": "kr_resident", "be_nn": "be_national", "cz_rc": "cz_birth",
    "no_fnr": "no_birth", "hu_tax_id": "hu_tax", "ee_ik": "ee_code",
}  # fmt: skip
_BY_NAME = {entry["name"]: entry for entry in table()}


def drawn(name: str, count: int) -> list[str]:
    draw = random.Random(name)  # noqa: S311 - reproducible, not secret
    return [NUMBERS[name](draw) for _ in range(count)]


def plain(number: str) -> str:
    return re.sub(r"[^0-9A-Za-z]", "", number)


@pytest.mark.parametrize("name", NUMBERS)
def test_each_number_fits_its_pattern_and_its_check(name: str) -> None:
    entry = _BY_NAME[_SAME.get(name, name)]
    for number in drawn(name, 30):
        assert CHECKS[entry["validate"]](plain(number))
        assert any(re.fullmatch(one["regex"], number) for one in entry["patterns"])


@pytest.mark.parametrize("name", sorted(NUMBERS.keys() - {"gb_nino", "in_pan", "dk_cpr"}))
def test_most_mistyped_numbers_fail_the_check(name: str) -> None:
    check = CHECKS[_BY_NAME[_SAME.get(name, name)]["validate"]]
    wrong = []
    for number in map(plain, drawn(name, 100)):
        at = next(place for place in range(3, len(number)) if number[place].isdigit())
        wrong.append(check(f"{number[:at]}{(int(number[at]) + 1) % 10}{number[at + 1 :]}"))
    assert sum(wrong) < 40


@pytest.mark.parametrize("name", NUMBERS)
def test_what_it_is_called_tells_a_number(name: str) -> None:
    entry = _BY_NAME[_SAME.get(name, name)]
    for label in entry["context"]:
        for number in drawn(name, 3):
            assert number not in text(f"{label}: {number}"), (label, number)


@pytest.mark.parametrize(
    "name",
    ["es_dni", "es_nie", "it_fiscal_code", "fi_hetu", "fr_nir", "cn_ric", "mx_curp", "ch_ahv", "de_social"],
)  # fmt: skip
def test_numbers_with_a_shape_of_their_own_need_no_word(name: str) -> None:
    for number in drawn(name, 5):
        assert number not in text(f"it reads {number}, as far as I can see")


def test_keys_tell_identity_numbers() -> None:
    given = {
        "pesel": "44051401359",
        "steuerId": "86095742719",
        "cpf": "52998224725",
        "bsn": "111222333",
    }
    assert all(str(made).startswith("<NATIONAL_ID") for made in value(dict(given)).values())  # type: ignore[union-attr]


def test_a_mistyped_number_right_behind_its_name_goes_too() -> None:
    assert text("PESEL 44051401358").startswith("PESEL <NATIONAL_ID")


@pytest.mark.parametrize(
    "kept",
    [
        "order 44051401359 has shipped", "took 123456789 ns", "id=86095742719 offset=52998224725",
        "bytes 111222333", "uid 1000", "commit 12345678", "run 12345678", "the CC is 12345678 rows",
        "sin(0.5) = 0.479425538", "fin 20240311", "pan the image by 12345678 px",
    ],
)  # fmt: skip
def test_numbers_of_other_things_stay(kept: str) -> None:
    assert text(kept) == kept


@pytest.mark.parametrize("said", ["Customer (ID {}) says", "ID: {}"])
def test_id_alone_tells_a_number_whose_check_holds(said: str) -> None:
    assert "8801235111088" not in text(said.format("8801235111088"))
    assert "8801235111089" in text(said.format("8801235111089"))


def test_they_are_government_ids() -> None:
    assert data_classes(["NATIONAL_ID"]) == ("government_id",)


PUBLISHED = {
    "AT": ("Sozialversicherungsnummer", "1237 010180"), "AU": ("TFN", "123 456 782"), "BE": ("rijksregisternummer", "85.07.30-033.28"),
    "BG": ("ЕГН", "7523169263"), "BR": ("CPF", "529.982.247-25"), "CA": ("SIN", "046 454 286"), "CH": ("AHV-Nummer", "756.9217.0769.85"),
    "CL": ("RUT", "12.345.678-5"), "CN": ("身份证号", "11010519491231002X"), "CZ": ("rodné číslo", "736028/5163"),
    "DE": ("Steuer-ID", "86 095 742 719"), "DK": ("CPR", "211062-5629"), "EE": ("isikukood", "37605030299"), "ES": ("DNI", "12345678Z"),
    "FI": ("henkilötunnus", "131052-308T"), "FR": ("numéro de sécurité sociale", "255081416802538"), "GB": ("NHS number", "943 476 5919"),
    "GR": ("ΑΦΜ", "094259216"), "HR": ("OIB", "33392005961"), "HU": ("adóazonosító jel", "8071592153"), "IE": ("PPS number", "1234567FA"),
    "IL": ("תעודת זהות", "039337423"), "IS": ("kennitala", "120174-3399"), "MT": ("ID card", "0512482M"), "IN": ("Aadhaar", "2345 6789 0124"), "IT": ("codice fiscale", "RSSMRA85T10A562S"),
    "JP": ("マイナンバー", "123456789018"), "KR": ("주민등록번호", "900101-1234568"), "MX": ("CURP", "BOXW310820HNERXN09"),
    "NL": ("BSN", "111222333"), "NO": ("fødselsnummer", "01010750160"), "PL": ("PESEL", "44051401359"), "PT": ("NIF", "123456789"),
    "RO": ("CNP", "1800101221144"), "RU": ("СНИЛС", "112-233-445 95"), "SE": ("personnummer", "811218-9876"), "SG": ("NRIC", "S1234567D"),
    "TR": ("TC kimlik", "10000000146"), "US": ("SSN", "536-22-8914"), "ZA": ("ID number", "8001015009087"),
}  # fmt: skip
"""A number of each country as its authorities or textbooks print it, check digits included."""

PHONES = {
    "AE": "0501234567", "AT": "0664123456", "AU": "0412345678", "BE": "0470123456", "BR": "11961234567", "CH": "0781234567",
    "CN": "13812345678", "CZ": "601123456", "DE": "015123456789", "DK": "32123456", "ES": "612345678", "FI": "0412345678",
    "FR": "0612345678", "GB": "07400123456", "GR": "6912345678", "HU": "06201234567", "IE": "0850123456", "IL": "0502345678",
    "IN": "8123456789", "IT": "3123456789", "JP": "09012345678", "KR": "01012345678", "MX": "2221234567", "NL": "0612345678",
    "NO": "40612345", "PL": "512345678", "PT": "912345678", "RO": "0712034567", "RU": "89123456789", "SE": "0701234567",
    "TR": "05012345678", "US": "4155550132", "ZA": "0711234567",
}  # fmt: skip


@pytest.fixture(scope="module")
def gdpr() -> Redactor:
    bundle = load_bundle(ROOT / "policies" / "gdpr")
    return redactor_of(bundle, pseudonym_key=KEY, subjects=MemorySubjectKeys())


@pytest.mark.parametrize("country", PUBLISHED)
def test_gdpr_takes_the_identity_numbers_of_many_countries(country: str, gdpr: Redactor) -> None:
    called, number = PUBLISHED[country]
    for said in (f"My {called} is {number}.", f"{called}: {number}", f"| {called} | {number} |"):
        assert number not in gdpr.redact_text(said, scope=SCOPE).text


@pytest.mark.parametrize("country", PHONES)
def test_gdpr_takes_the_phones_of_many_countries(country: str, gdpr: Redactor) -> None:
    number = phonenumbers.parse(PHONES[country], country)
    formats = phonenumbers.PhoneNumberFormat
    written = [
        phonenumbers.format_number(number, one)
        for one in (formats.E164, formats.INTERNATIONAL, formats.NATIONAL)
    ]
    for said in (
        f"Tel. {PHONES[country]}",
        *(f"You can reach me at {one} today" for one in written),
    ):
        text = gdpr.redact_text(said, scope=SCOPE).text
        assert not any(one in text for one in (PHONES[country], *written)), text
