"""The embedded names model, and what happens when a model that policy asks for is not there."""

from functools import cache
from pathlib import Path

import pytest

from governance.detect.finding import Finding, Unit
from governance.detect.names_model import EMBEDDED, NamesModel, segments
from governance.detect.view import view_of
from tests.governance.redaction_support import SCOPE, made
from trajectory.errors import ConfigurationError


@cache
def model() -> NamesModel:
    return NamesModel.load("embedded", frozenset({"PERSON", "LOCATION", "ORGANIZATION"}))


def found(text: str, known: list[Finding] | None = None) -> set[tuple[str, str]]:
    (findings,) = model().find([Unit(view_of(text))], [known or []])
    return {(f.entity, text[f.start : f.end]) for f in findings}


def test_people_and_places_in_plain_text() -> None:
    text = "Brenda Thistlewood moved from Lisbon to Nairobi last spring."
    assert found(text) >= {
        ("PERSON", "Brenda Thistlewood"),
        ("LOCATION", "Lisbon"),
        ("LOCATION", "Nairobi"),
    }


@pytest.mark.parametrize(
    "text",
    [
        "The Quick Start explains Installation and Configuration.",
        "class HTTPServer(BaseServer):\n    def Get(self): return Result(Ok)",
        '{"tool": "get_quote", "item": "Lamp", "quantity": 3}',
        "",
    ],
)
def test_code_and_headings_name_nobody(text: str) -> None:
    assert not {entity for entity, _ in found(text)} & {"PERSON"}


def test_what_is_explained_is_not_asked_about() -> None:
    text = "we met Brenda Thistlewood in Lisbon"
    assert found(text)
    assert not found(
        text, [Finding("PERSON", 7, 25, 0.8, "rule"), Finding("X", 29, 35, 0.8, "rule")]
    )


@pytest.mark.parametrize("length", [0, 1, 319, 320, 321, 5000])
def test_segments_are_the_whole_text(length: int) -> None:
    text = ("word Name\n" * 600)[:length]
    pieces = list(segments(text))
    assert "".join(piece for _, piece in pieces) == text
    assert all(text[at : at + len(piece)] == piece for at, piece in pieces)


def test_a_missing_model_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match="en_no_such_pipeline"):
        made(names={"model": "en_no_such_pipeline"})


def test_a_pipeline_of_the_users_own_is_loaded_by_its_folder() -> None:
    redactor = made(names={"model": str(EMBEDDED)}, entities={"LOCATION": "drop"})
    clean = redactor.redact_text("Her sister lives in Nairobi now.", scope=SCOPE).text
    assert clean == "Her sister lives in <LOCATION> now."


def test_the_embedded_model_is_small_and_attributed() -> None:
    files = [path for path in Path(EMBEDDED).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 6_000_000
    assert (EMBEDDED.parent / "ATTRIBUTION.md").is_file()
