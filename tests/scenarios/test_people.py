"""One person, however written: withdrawal, erasure and destroyed keys reach every row that names them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import run
from headrace.services.imports import find_format, import_documents
from lakehouse.lake import Lake
from proxy.spool import SpoolWriter
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


@pytest.mark.parametrize("name", ["headrace", "openai-messages", "atif", "otel-genai", "openenv"])
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


def _naming(name: str, document: JsonObject, person: str, other: str | None = None) -> Any:
    """Return a document that says who used the application, as each format does."""
    said = json.loads(json.dumps(document))
    match name:
        case "headrace":
            said["end_user"] = person
            if other:
                said["also_named"] = [other]
        case "atif":
            said["extra"] |= {"user_id": person} | ({"userId": other} if other else {})
        case "otel-genai":
            span = said["resourceSpans"][0]["scopeSpans"][0]["spans"][-1]
            span["attributes"].append({"key": "user.id", "value": {"stringValue": person}})
            if other:
                also = {"key": "enduser.id", "value": {"stringValue": other}}
                span["attributes"].append(also)
        case "openenv":
            said["turns"][0]["request"]["user"] = person
            if other:
                said["turns"][0]["metadata"]["user_id"] = other
        case _:
            said["user"] = person
            if other:
                said["metadata"] = {"user_id": other}
    return said


@pytest.mark.parametrize("act", ["withdraw", "erase"])
@pytest.mark.parametrize("name", ["headrace", "openai-messages", "atif", "otel-genai", "openenv"])
def test_everybody_whom_an_imported_document_names_can_take_it_back(
    house: PlantedInstallation, capsys: pytest.CaptureFixture[str], name: str, act: str
) -> None:
    people = ["customer-4711-b", "seat-0815-c"]
    whole = own_trajectory()
    (written,) = FORMATS[name].write([replace(whole, steps=whole.steps[:2], signals=())])
    document = house.home.root / "in.json"
    document.write_text(json.dumps(_naming(name, written.document, *people)), "utf-8")
    assert len(_imported(house, document, name)) == 2
    document.unlink()
    assert house.at_rest(people) == {}
    if act == "withdraw":
        done(capsys, "consent", "withdraw", people[1], "--tenant", "acme")
        assert _eligible(house) == 0
    else:
        report = done(capsys, "erase", people[1], "--tenant", "acme", "--yes", "--json")
        assert json.loads(report)["rows"]["steps"] == 2


def _imported(house: PlantedInstallation, document: Path, name: str) -> list[dict[str, Any]]:
    """Import a document and govern it; return what its steps may be used for, and whom they concern."""
    client = chat(1, []).client
    with SpoolWriter(house.home.spool, house.secrets.derive(b"spool")) as spool:
        import_documents([document], form=find_format(name), client=client, spool=spool)
    house.govern()
    return (
        Lake.open(str(house.home.lake))
        .query("SELECT purposes, subjects FROM eligible_steps ORDER BY step_index")
        .to_pylist()
    )


@pytest.mark.parametrize("name", ["headrace", "openai-messages", "atif", "otel-genai", "adp"])
def test_an_export_carries_what_a_person_allows_and_the_name_to_withdraw_it_by(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    ours, theirs = (PlantedInstallation(tmp_path / one) for one in ("ours", "theirs"))
    person, document = "customer-4711-b", tmp_path / "out.jsonl"
    monkeypatch.setenv("HEADRACE_HOME", str(ours.home.root))
    ours.govern(chat(1, [user("Hi.")], user=person))
    refused = ("--tenant", "acme", "--purpose", "train_sft")
    whom = done(capsys, "consent", "withdraw", person, *refused).split()[1]
    done(capsys, "trajectory", "export", "-f", name, "-o", str(document), "--purpose", "eval")
    assert person not in document.read_text("utf-8")

    monkeypatch.setenv("HEADRACE_HOME", str(theirs.home.root))
    (step,) = _imported(theirs, document, name)
    assert step["purposes"] == ["debug", "eval", "train_preference", "train_rl"]
    assert whom in step["subjects"]
    again = tmp_path / "again.jsonl"
    done(capsys, "trajectory", "export", "-f", "headrace", "-o", str(again), "--purpose", "eval")
    (told,) = json.loads(again.read_text("utf-8"))["steps"]
    assert (told["purposes"], told["subjects"]) == (step["purposes"], step["subjects"])
    assert told["legal_basis"] == "consent"
    done(capsys, "consent", "withdraw", whom, "--tenant", "acme")
    assert _eligible(theirs) == 0
    report = json.loads(done(capsys, "erase", whom, "--tenant", "acme", "--yes", "--json"))
    assert report["rows"]["steps"] == 1


def test_what_a_document_calls_a_subject_and_is_no_pseudonym_becomes_one(
    house: PlantedInstallation,
    capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    person, whole = "customer-4711-b", own_trajectory()
    first = replace(whole.steps[0], purposes=("eval", "debug"), subjects=(person,))
    document = tmp_path_factory.mktemp("elsewhere") / "in.json"
    (written,) = FORMATS["headrace"].write(
        [replace(whole, steps=(first, whole.steps[1]), signals=())]
    )
    document.write_text(json.dumps(written.document), "utf-8")
    steps = _imported(house, document, "headrace")
    # The second step says nothing; its conversation holds the first.
    assert [step["purposes"] for step in steps] == [["debug", "eval"]] * 2
    assert house.at_rest([person]) == {}
    assert _eligible(house) == 2
    done(capsys, "consent", "withdraw", person, "--tenant", "acme")
    assert _eligible(house) == 0
