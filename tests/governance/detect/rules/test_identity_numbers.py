"""Identity numbers of many countries: by check digits, by what they are called, and by their keys."""

import random
import re

import pytest

from benchmarks.agent_texts_values import NUMBERS
from governance.data_classes import data_classes
from governance.detect.rules.identity_checks import CHECKS
from governance.detect.rules.identity_numbers import table
from tests.governance.redaction_support import text, value

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


def test_they_are_government_ids() -> None:
    assert data_classes(["NATIONAL_ID"]) == ("government_id",)
