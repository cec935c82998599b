"""What a listed name needs where ordinary words and things have a capital too, and where people still go."""

from functools import cache

import pytest

from governance.policy.redaction import RedactionSpec
from governance.redact import Redactor, build_redactor
from tests.governance.redaction_support import KEY, SCOPE


@cache
def _with_model() -> Redactor:
    return build_redactor(RedactionSpec(), pseudonym_key=KEY)


def _after(given: str) -> str:
    return _with_model().redact_text(given, scope=SCOPE).text


@pytest.mark.parametrize(
    "kept",
    [
        "Niet thuis? Dan brengen we het pakket naar een punt in de buurt.", "Bahar gelir, dağlar yeşerir.", "Deniz susar, martılar uyur.",
        "Ernst steht der Mond am Himmel.", "Mei is doorgaans droog.", "Luna (nueva) y marea alta.",
    ],
)  # fmt: skip
def test_a_word_of_some_language_that_begins_a_sentence_is_no_name(kept: str) -> None:
    assert _after(kept) == kept


@pytest.mark.parametrize(
    ("given", "name"),
    [("Deniz joined the call.", "Deniz"), ("Ich war mit Ernst im Kino.", "Ernst"), ("Luna forgot to sign the form.", "Luna")],
)  # fmt: skip
def test_the_same_word_is_one_where_somebody_acts_or_is_met(given: str, name: str) -> None:
    assert name not in _after(given)


@pytest.mark.parametrize(
    "kept",
    [
        "Pos  Art.-Nr.   Menge", "Max. 30 kg", "see Lemma 4.2 above", "Bump Hugo from 0.121 to 0.125", "Minimum Julia version: Julia 1.10.2",
        'Kupplung Typ "Karl" ab Lager', "variety 'Annabelle' flowers late", "celery==5.4.0\nFlorence==0.3.1",
    ],
)  # fmt: skip
def test_abbreviations_versions_and_types_are_no_names(kept: str) -> None:
    assert _after(kept) == kept


@pytest.mark.parametrize("given", ['Customer "Karl" not found', "user 'Wilfred' locked"])
def test_a_name_in_quotation_marks_goes_behind_who_it_is(given: str) -> None:
    assert "Karl" not in _after(given)
    assert "Wilfred" not in _after(given)


@pytest.mark.parametrize(
    "kept",
    [
        "Object     Type       Period\nJuno       asteroid   1594\nMiranda    moon       1.413\nRosalind   moon       0.558",
        "Metal      Symbol   Density\nGallium    Ga       5.91\nRosalind   Rs       9.1",
        "sensor,unit,value\nMartha,degC,21.4\nOtis,degC,20.9",
        "| Station | Level |\n|---|---|\n| Florence | 4.1 |",
    ],
)  # fmt: skip
def test_cells_below_the_head_of_things_are_no_names(kept: str) -> None:
    assert _after(kept) == kept


def test_cells_below_the_head_of_people_go() -> None:
    after = _after(
        "Pupil         Guardian            Bus\nTadhg         Sorcha Delahunty    4\nAnwuli        Chidi Nwachukwu     none"
    )
    for name in ("Tadhg", "Sorcha", "Delahunty", "Anwuli", "Chidi", "Nwachukwu"):
        assert name not in after
    assert "Pupil         Guardian            Bus" in after


@pytest.mark.parametrize(
    "kept",
    [
        "Morbus Basedow, Kontrolle in 6 Wochen.", "La maladie de Horton est traitée.", "Signo de Murphy negativo.", "Hurricane Beryl weakened.",
        "MS Richard With er forsinket.", "docs: how Lambert projections differ", "feat: Kaplan-Meier plot", "3fa9e11 stats: use Welch instead of Student",
        "Die Otto-Moericke-Turm GmbH", "Wilson-Score und Lambert-Projektion",
    ],
)  # fmt: skip
def test_what_is_called_after_somebody_is_a_thing(kept: str) -> None:
    assert _after(kept) == kept


@pytest.mark.parametrize(
    "kept",
    [
        "- {name: X-Api-Key, in: header}", "- {name: Idempotency-Key, in: header}", "name: Accept-Language", "name: Sec-Fetch-Site",
        "Dem Antrag sind Pläne beizufügen. Die Gebühr richtet sich nach Anlage 2.", "Zu prüfen. Der Antrag ist zu stellen.",
    ],
)  # fmt: skip
def test_names_of_headers_and_words_after_an_umlaut_are_no_people(kept: str) -> None:
    assert _after(kept) == kept


@pytest.mark.parametrize(
    "kept",
    [
        "Jornada 27. Un Vélez Sarsfield mejor dominó la primera parte ante su público.",
        "Das Programm stellt Bachs Magnificat D-Dur dem Magnificat von Zelenka gegenüber, die Orgel spielt.",
        "METAR KORD 141651Z 27015G24KT 10SM FEW049\nSPECI RJTT 141712Z 34022KT 9999",
    ],
)  # fmt: skip
def test_words_of_one_field_around_make_it_a_club_or_a_work(kept: str) -> None:
    assert _after(kept) == kept


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("Interviewer: T. Adebayo-Wright\nRole: engineer", ("Adebayo", "Wright")),
        ("Medewerker: Wietske van den Heuvel-Bosma    Pers.nr: 40712", ("Wietske", "Heuvel", "Bosma")),
        ("Destinatário: Capitolina Figueiredo Brandão\nMorada: Porto", ("Capitolina", "Brandão")),
        ("Demandeur : LE GOFF Maëlys (Service Paie)", ("GOFF", "Maëlys")),
        ("Närmast anhörig: Torulf (make)", ("Torulf",)),
        ("Notfallkontakt: Quenby", ("Quenby",)),
        ("Agent (Kavita): Namaste, main aapki kaise madad kar sakti hoon?", ("Kavita",)),
        ("Kundin (Yseulte): Guten Tag", ("Yseulte",)),
        ("Also Hyun-woo hit this exact panic last week.", ("Hyun-woo",)),
        ("fila={'nombre': 'Gaizka', 'apellidos': 'Urrutikoetxea Lamas'}", ("Gaizka", "Urrutikoetxea")),
        ('<input name="cognome" value="Zambelloni">', ("Zambelloni",)),
        ('[{"key": "lastName", "value": "Abimbola"}]', ("Abimbola",)),
        ("given_name   | Xiomara\nfamily_name  | Delacroix-Pham\nhire_date    | 2016-08-15", ("Xiomara", "Delacroix", "Pham")),
        ("Voy con Maripaz que no tiene coche", ("Maripaz",)),
    ],
)  # fmt: skip
def test_whole_names_go_where_forms_records_and_chats_have_them(
    given: str, names: tuple[str, ...]
) -> None:
    after = _after(given)
    assert [name for name in names if name in after] == []


def test_a_record_that_is_printed_one_field_a_line_keeps_its_keys() -> None:
    after = _after(
        "emp_no       | 20417\ngiven_name   | Xiomara\nfamily_name  | Delacroix-Pham\nssn          | 219-48-7306"
    )
    assert "ssn          | " in after
    assert "219-48-7306" not in after


@pytest.mark.parametrize(
    ("given", "handle"),
    [
        ("Demandeur : LE GOFF Maëlys (Service Paie)\nIdentifiant : mlegoff.", "mlegoff"),
        ("Melder: VON DER HEIDE Annegret\nKennung: avonderheide", "avonderheide"),
        ("Kevin Oyelaran asked.\nssh koyelaran", "koyelaran"),
    ],
)  # fmt: skip
def test_accounts_made_of_a_name_in_the_text_go(given: str, handle: str) -> None:
    assert handle not in _after(given)
