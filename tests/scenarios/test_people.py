"""One person, however written: withdrawal, erasure and destroyed keys reach every row that names them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import run
from lakehouse.lake import Lake
from tests.headrace.installations import PlantedInstallation, chat
from tests.trajectory.documents import own_trajectory
from trajectory.canonical import JsonObject
from trajectory.exchange import HttpRequest
from trajectory.formats.catalog import FORMATS
from trajectory.imports import MODE, document_body

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def done(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    result = run(list(arguments))
    streams = capsys.readouterr()
    assert result == code, streams.err
    return streams.out


def user(text: str) -> JsonObject:
    return {"role": "user", "content": text}


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlantedInstallation:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    return PlantedInstallation(tmp_path)


def _eligible(house: PlantedInstallation) -> int:
    lake = Lake.open(str(house.home.lake))
    found = lake.query(
        "SELECT count(*) AS n FROM eligible_steps WHERE list_contains(purposes, 'eval')"
    )
    return int(found["n"][0].as_py())


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        (
            ("I'm Leonie Hartwig. Please move my shift.", "Ich bin Leonie Hartwig aus Berlin."),
            "leonie hartwig",
        ),
        (
            ("Refund Leonie Hartwig, she has lupus.", "Attorney Leonie Hartwig called."),
            "Leonie Hartwig",
        ),
        (
            ("Leonie Hartwig Jr. has called.", "My name is Leonie M. Hartwig."),
            "Leonie Hartwig",
        ),
        (
            (
                "login failed email=maria.gonzalez@corp-mail.com ip=1",
                "Contact: **Maria.Gonzalez@corp-mail.com**",
            ),
            "<maria.gonzalez@corp-mail.com>",
        ),
        (("call +1 415 555 0132 now", "phone: (415) 555-0132 ext. 5"), "415.555.0132"),
        (("call +1 415 555 0132 now", "phone: (415) 555-0132"), "+14155550132"),
    ],
)
def test_a_person_is_reached_by_every_spelling(
    house: PlantedInstallation,
    capsys: pytest.CaptureFixture[str],
    said: tuple[str, ...],
    asked: str,
) -> None:
    exchanges = [chat(place + 1, [user(text)]) for place, text in enumerate(said)]
    assert house.govern(*exchanges, chat(9, [user("The lamp is blue.")])) == {"stored": 3}
    assert _eligible(house) == 3
    done(capsys, "consent", "withdraw", asked, "--tenant", "acme")
    assert _eligible(house) == 1
    assert "false" in done(capsys, "consent", "show", asked, "--tenant", "acme", "--json")
    report = json.loads(done(capsys, "erase", asked, "--tenant", "acme", "--yes", "--json"))
    assert report["rows"]["steps"] == 2
    lake = Lake.open(str(house.home.lake))
    assert lake.query("SELECT count(*) AS n FROM steps")["n"].to_pylist() == [1]


def test_the_scan_looks_for_every_spelling(
    house: PlantedInstallation, capsys: pytest.CaptureFixture[str]
) -> None:
    house.home.root.joinpath("note.txt").write_text("HARTWIG, Leonie: (415) 555-0132\n")
    for asked in ("Leonie Hartwig", "+14155550132"):
        found = json.loads(done(capsys, "audit", "scan", asked, "--json", code=1))
        assert found["values_found"] == 1


def test_an_end_user_may_be_called_like_a_pseudonym(
    house: PlantedInstallation, capsys: pytest.CaptureFixture[str]
) -> None:
    house.govern(chat(1, [user("The lamp is blue.")], user="subject_0017"))
    assert _eligible(house) == 1
    done(capsys, "consent", "withdraw", "subject_0017", "--tenant", "acme")
    assert _eligible(house) == 0


@pytest.mark.parametrize("name", ["headrace", "openai-messages", "atif", "otel-genai"])
def test_whom_an_imported_document_names_is_known_by_a_pseudonym_alone(
    house: PlantedInstallation, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    person = "customer-4711-b"
    whole = own_trajectory()
    (written,) = FORMATS[name].write([replace(whole, steps=whole.steps[:2], signals=())])
    (read,) = FORMATS[name].read(_naming(name, written.document, person), "document")
    request = HttpRequest(
        "POST", f"/import/{name}", "", (("x-headrace-format", name),), document_body(read)
    )
    house.govern(replace(chat(1, []), mode=MODE, request=request), chat(2, [user("Hi.")]))
    assert _eligible(house) == 3
    assert house.at_rest([person]) == {}
    report = json.loads(done(capsys, "erase", person, "--tenant", "acme", "--yes", "--json"))
    assert report["rows"]["steps"] == 2


def _naming(name: str, document: JsonObject, person: str) -> Any:
    """Return a document that says who used the application, as each format does."""
    said = json.loads(json.dumps(document))
    match name:
        case "headrace":
            said["end_user"] = person
        case "atif":
            said["extra"]["user_id"] = person
        case "otel-genai":
            span = said["resourceSpans"][0]["scopeSpans"][0]["spans"][-1]
            span["attributes"].append({"key": "user.id", "value": {"stringValue": person}})
        case _:
            said["user"] = person
    return said
