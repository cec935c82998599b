"""What only people do, and what has the name of a person and is none: places, kings, theorems, types, projects."""

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
    "sentence",
    [
        "{} forgot to sign the form.", "{} is on holiday this week.", "{} is off sick, ask me instead.", "I heard {} resigned.",
        "{} hat die Schlüssel vergessen.", "{} ist im Urlaub.", "{} a encore oublié sa carte.", "{} est en congé.",
        "{} dijo que vuelve mañana.", "{} está de vacaciones.", "{} ha dimenticato la chiave.", "{} è in ferie.",
        "A {} esqueceu a chave.", "{} is op vakantie.", "{} heeft gebeld.", "{} jest na urlopie.",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["Quenby", "Lancaster", "Yseulte"])
def test_a_lone_name_goes_where_somebody_acts(sentence: str, name: str) -> None:
    assert name not in _after(sentence.format(name))


@pytest.mark.parametrize(
    "sentence",
    ["Frag mal {} danach.", "fala com o {} amanhã", "habla con {} primero", "chiedi a {} la password"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["Quenby", "Yseulte"])
def test_a_lone_name_goes_where_somebody_is_asked(sentence: str, name: str) -> None:
    assert name not in _after(sentence.format(name))


@pytest.mark.parametrize(
    "given",
    [
        "Prezado Sr. Cordoba,", "Mrs Hamilton called twice.", "Herr Kassel ruft zurück.", "Geachte heer Yntema,",
    ],
)  # fmt: skip
def test_somebody_behind_a_title_has_the_name_of_a_town(given: str) -> None:
    assert "<PERSON_" in _after(given)


def test_who_speaks_in_a_chat_goes() -> None:
    chat = (
        "Quenby: has anyone got the badge?\nYseulte: Ferdinand took it home\nQuenby: ok thanks then"
    )
    after = _after(chat)
    assert "Quenby" not in after
    assert "Yseulte" not in after


def test_labels_of_notes_are_nobody() -> None:
    notes = (
        "Fixed: the build is green again\nOpen: the nightly run still fails\nFixed: the cache works"
    )
    assert _after(notes) == notes


def test_the_first_name_of_a_found_name_goes_where_it_stands_by_itself() -> None:
    assert "Quenby" not in _after("It should be Quenby Novak, no. 55. Please reissue. Quenby")


@pytest.mark.parametrize("closing", ["Gracias,", "Grazie", "Obrigada,", "Merci beaucoup,", "Vielen Dank", "Bedankt,"])  # fmt: skip
def test_a_name_behind_thanks_goes(closing: str) -> None:
    assert "Yseulte" not in _after(f"ok.\n\n{closing}\nYseulte")


@pytest.mark.parametrize(
    "kept",
    [
        'if region in {"Chad", "Georgia", "Jordan"}:', "The bus from Alicante to Murcia, Charlotte and Austin is late.",
        "a road between Gijón and Avilés", "La carretera entre Lugo y Vigo", "El tren a Santa Cruz y Mercedes no sale.",
        "A praça D. Pedro está fechada.", "O museu Rafael abre às dez.", "the fires in Mariposa County",
        "Under Henri IV trade grew.", "le règne de Charles VII", "sous Henri Ier", "The Mercedes Citan is in the yard.",
        "Der Zug hält in Leipzig Hauptbahnhof.", "Borussia Dortmund spielt heute.",
        "By Jensen the kernel is convex, so the inequality holds.", "Kirchhoff's rules", "Otherwise LGTM.", "Dr. Oetker stellt ein.", "Dr. Martens are boots.",
        "pub struct Harper { seed: u64 }", "class Parker extends Morgan {", "# Watson\n\nWatson has no dependencies.",
        "Iris germanica grows here.", "SKU,NAME\n12,Chelsea boots", "Der Hausmeister hat angerufen.", "the Merchant wants the refund",
    ],
)  # fmt: skip
def test_what_is_called_like_somebody_stays(kept: str) -> None:
    assert _after(kept) == kept


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("./clients/Quenby Brandvold/scan.jpg", ["Quenby", "Brandvold"]), ("Vertretung: Yseulte.", ["Yseulte"]),
        ("Interviewers: Marta Nowak, Ned Ollerby", ["Nowak", "Ollerby"]), ("MM. Leroux et Benhaddou sont venus.", ["Leroux", "Benhaddou"]),
        ("Frau Yntema fragt. Herr Kettler übernimmt die Bestellung.", ["Yntema", "Kettler"]), ("T.a.v. mevrouw De Wulf", ["Wulf"]),
        ("¿Puedes decirle a Yseulte que llame?", ["Yseulte"]), ("ok.\n\nBesos,\nYseulte", ["Yseulte"]), ("do pani Szymborskiej", ["Szymborskiej"]),
        ("Ersilia e Jörn arrivano domani.", ["Ersilia"]), ("Gorka ha llamado.", ["Gorka"]),
        ("Die Akten liegen bei Heidrun im Schrank.", ["Heidrun"]), ("Il dott. Ferrari la riceve.", ["Ferrari"]), ("Our new intern Aaliyah is here.", ["Aaliyah"]),
    ],
)  # fmt: skip
def test_people_in_other_places_of_a_text_go(given: str, names: list[str]) -> None:
    after = _after(given)
    for name in names:
        assert name not in after


@pytest.mark.parametrize(
    "kept",
    [
        "2025-05-19T10:00:00Z [Thor] leader elected", "the app name: Penelope", "Shares in Ralph Lauren fell.", "Il liceo Galvani apre a gennaio.",
        "A linha para em Santo Amaro.", "Cronbach's alpha was 0.8, the variance was low.", "Headings use Fira Mono.", "Can we drop Lodash here?",
        "Trams rijden om via Blaak.", "Mercury, Venus and Mars line up.", "from Britain to Syria", "Er arbeitet bei Bosch in Ulm.", "Chelsea beat Everton.",
    ],
)  # fmt: skip
def test_more_of_what_is_called_like_somebody_stays(kept: str) -> None:
    assert _after(kept) == kept
