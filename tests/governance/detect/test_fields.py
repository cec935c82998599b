"""A label says what its value is, whatever format stands between the two; and says nothing of things."""

import pytest

from governance.detect.fields import fields
from tests.governance.redaction_support import text

FORMATS = (
    "{label}: {value}", "{label} -> {value}", "{label} → {value}", "# {label} => {value}, ok", "{label}={value}", "[{label}] = '{value}'",
    '<p>{label}: <b>{value}</b></p>', "<tr><td>{label}</td><td>{value}</td></tr>", "<{label}>{value}</{label}>",
    "{label}:\n  {value}\nref: 1", "- text: {label}\n- text: {value}", "**{label}**: `{value}`", "call({label}={value}, n=3)", "{label} **{value}** ok", '"{label}": ["{value}", "x"]', 'form-data; name="{label}"\n\n{value}',
    "https://api.example.org/v1?{label}={value}&n=3 returned 422",
)  # fmt: skip
VALUES = (
    ("passaporto", "YB4471902"), ("útlevélszám", "BH4471902"), ("kartoteki", "44719/26"), ("kenteken", "44-LB-ZK"), ("rachunek", "6109010140"),
    ("syntynyt", "24.6.1971"), ("körkortsnummer", "850612-447190"), ("plaka", "34KZV447"),
)  # fmt: skip


@pytest.mark.parametrize("written", FORMATS)
@pytest.mark.parametrize(("label", "value"), VALUES)
def test_a_value_goes_behind_its_label_in_every_format(
    written: str, label: str, value: str
) -> None:
    assert value not in text(written.format(label=label, value=value))


@pytest.mark.parametrize("written", FORMATS[:-1])
@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("omistaja", "Quillon Wrasp"), ("odbiorca", "Quillon Wrasp"), ("försäkringstagare", "quillon wraspfeld"),
        ("契約者", "長谷川美智子"), ("예금주", "독고두팔"),
    ],
)  # fmt: skip
def test_a_name_goes_behind_what_somebody_is(written: str, label: str, name: str) -> None:
    assert name not in text(written.format(label=label, value=name))


def test_names_in_a_query_and_in_a_list_go_one_by_one() -> None:
    said = text(
        "GET /v?navn=Ragnhild+Tveitdal&fra=Oslo\npassengers: Quillon Wrasp, Berit Wraspfeld"
    )
    assert [name for name in ("Ragnhild", "Tveitdal", "Wrasp", "Wraspfeld") if name in said] == []
    assert "fra=Oslo" in said


@pytest.mark.parametrize(
    "kept",
    [
        "driver: Nouveau", "kunde: zufrieden", "owner = platform", "patient: stable", "reg = 0x1F40", "mov reg: r12d", "pas: 0.01", "policy: 2012-10-17",
        "kind: Deployment", "kz: false", "beneficiary -> none", "nume = total", "<nimi>jackson-databind</nimi>", "tel: see below",
        "We asked the customer: wait until Monday.", "tutor: Python", "konto: 12", "<td>Kunde</td><td>Preis</td>", "let host = window.location",
        "Passagier: https://example.org", "alter: table", "age -> unknown", "plaka: yok", "GET /v?nume=total&n=3",
    ],
)  # fmt: skip
def test_what_is_nobodys_stays_behind_a_label(kept: str) -> None:
    assert text(kept) == kept


def test_places_are_those_of_the_text() -> None:
    given = "x; passenger: Quillon Wrasp\nage -> 67"
    found = [(one.key, given[one.start :][: len(one.value)]) for one in fields(given)]
    assert found == [("full_name", "Quillon Wrasp"), ("age", "67")]


@pytest.mark.parametrize("label", ["DOB: 03/04/1931", "Passport: YB4471902", "MRN: 4411223"])
def test_a_sentence_behind_a_value_is_no_further_value(label: str) -> None:
    assert "the man has 44 spare keys" in text(f"{label}, and the man has 44 spare keys")
