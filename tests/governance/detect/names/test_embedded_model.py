"""The embedded names model: what it finds, what it doubts, and its network against torch's."""

import random
import string
import uuid
from functools import cache
from pathlib import Path

import numpy
import pytest

from governance.detect.finding import Finding, Unit
from governance.detect.names.embedded_model import EmbeddedNames
from governance.detect.names.rules import NameRules
from governance.detect.names.tagger import EMBEDDED, NamesTagger, tokens
from governance.detect.normalized_text import view_of
from tests.governance.hostile import HOSTILE, dense, drawn

PROSE = (
    "Brenda Thistlewood moved from Lisbon to Nairobi last spring; Dr. O'Neil-Garcia can't come.",
    " def f(x):\n\n\treturn x-1  # Zorv's  idea\n\n\n\n\n\nregards,\nZorv Kelbin",
    "\u6c49\u5b57Maria \u2603Ann\u2603a \u0410\u043d\u043d\u0430, \u0627\u062d\u0645\u062f!",
    "",
    " ",
    "x",
)


@cache
def model() -> EmbeddedNames:
    return EmbeddedNames(frozenset({"PERSON", "LOCATION", "ORGANIZATION"}))


def found(text: str, known: list[Finding] | None = None) -> set[tuple[str, str]]:
    (findings,) = model().find([Unit(view_of(text))], [known or []])
    return {(f.entity, text[f.start : f.end]) for f in findings}


def test_a_given_name_with_a_hyphen_is_found_whole() -> None:
    assert found("Lead: Sun-hee Kang, procurement") >= {("PERSON", "Sun-hee Kang")}


@pytest.mark.parametrize("name", ["Leonie****Hartwig", "Leonie~~~~Hartwig", "Leonie** **Hartwig"])
def test_a_name_of_two_emphasised_words_is_found_whole(name: str) -> None:
    assert found(f"Ask {name} about the lamp.") == {("PERSON", name)}
    assert found(name) == {("PERSON", name)}


def test_a_power_in_code_names_nobody() -> None:
    assert not found("area = Length**Width; total = base**exponent")


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
        "gitStatus: This is the git status at the start of the conversation.",
        "",
    ],
)
def test_code_and_headings_name_nobody(text: str) -> None:
    assert not {entity for entity, _ in found(text)} & {"PERSON"}


_BASE62 = string.ascii_letters + string.digits


@pytest.mark.parametrize(
    ("key", "begins", "letters", "length"),
    [
        ("response_id", "chatcmpl-", "0123456789abcdef", 24),
        ("id", "msg_", _BASE62, 24),
        ("tool_use_id", "toolu_", _BASE62, 24),
        ("session", "", "0123456789abcdef", 32),
        ("request_id", "req-", "0123456789ABCDEF", 16),
        ("blob", "sha256:", "0123456789abcdef", 64),
    ],
)
def test_opaque_ids_name_nobody(key: str, begins: str, letters: str, length: int) -> None:
    draw = random.Random(7)  # noqa: S311 - reproducible
    ids = [begins + "".join(draw.choices(letters, k=length)) for _ in range(300)]
    ids += [f"{begins}{uuid.UUID(int=draw.getrandbits(128))}" for _ in range(100)]
    findings = model().find([Unit(view_of(text), (key,)) for text in ids])
    assert [text for text, found_there in zip(ids, findings, strict=True) if found_there] == []


def test_what_is_explained_is_not_found_again() -> None:
    text = "we met Brenda Thistlewood in Lisbon"
    assert found(text)
    known = [Finding("PERSON", 7, 25, 0.8, "rule"), Finding("X", 29, 35, 0.8, "rule")]
    assert not found(text, known)


def test_a_name_is_looked_at_with_its_key() -> None:
    (findings,) = model().find([Unit(view_of("Brenda Thistlewood"), ("customer", "name"))])
    assert [(f.entity, f.start, f.end) for f in findings] == [("PERSON", 0, 18)]


@pytest.mark.parametrize("key", ["label", "title", "subject"])
@pytest.mark.parametrize("name", ["Aneta Wójcik", "Priya Raman", "maria lopez"])
def test_somebody_under_the_key_of_a_thing_is_found(key: str, name: str) -> None:
    (findings,) = model().find([Unit(view_of(name), (key,))])
    assert [(f.entity, f.start, f.end) for f in findings] == [("PERSON", 0, len(name))]


@pytest.mark.parametrize(
    ("key", "thing"), [("label", "Rose Gold"), ("title", "Blue Mountain"), ("model", "Sprinter")]
)
def test_a_thing_under_its_key_is_nobody(key: str, thing: str) -> None:
    (findings,) = model().find([Unit(view_of(thing), (key,))])
    assert not [f for f in findings if f.entity == "PERSON"]


def test_listed_names_in_places_of_things_are_nobody() -> None:
    text = "### Removed\n- the old skins `Clara` and `Oscar`; use the theme `Hugo` instead"
    units = [Unit(view_of(text))]
    assert NameRules().find(units)[0]
    assert not NameRules(model().confirmed).find(units)[0]


@pytest.mark.parametrize("size", [0, 1, 3, len(PROSE)])
def test_texts_are_answered_one_by_one_and_together(size: int) -> None:
    tagger = NamesTagger(EMBEDDED)
    together = tagger(PROSE[:size])[1]
    apart = [tagger([text])[1] for text in PROSE[:size]]
    assert len(together) == sum(map(len, apart))
    if size:
        assert numpy.allclose(together, numpy.concatenate(apart), atol=1e-4)


def test_tokens_are_the_letters_digits_and_marks_of_a_text() -> None:
    for text in (
        *PROSE,
        *(text[:300] for text in HOSTILE.values()),
        *(t for _, t in drawn(7, 20, 300)),
    ):
        got = tokens([text])
        assert (got.starts[1:] >= got.ends[:-1]).all()
        covered = "".join(text[a:b] for a, b in zip(got.starts, got.ends, strict=True))
        assert "".join(covered.split()) == "".join(text.split())


@pytest.mark.slow
def test_answers_are_those_of_the_network_that_is_trained() -> None:
    torch = pytest.importorskip("torch")
    from governance.detect.names.tagger import features
    from scripts.names_model.train import Network

    with numpy.load(EMBEDDED / "network.npz") as held:
        names = [name for name in held.files if name != "vocabulary"]
        weights = {name: held[name].astype(numpy.float32) for name in names}
    for name in ("lists", "flags", "whole"):
        weights[f"{name}.weight"] = weights.pop(name).T
    for place in range(4):
        weights[f"tables.{place}.weight"] = weights.pop(f"tables.{place}")
    network = Network(weights["out.weight"].shape[1]).eval()
    network.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    tagger = NamesTagger(EMBEDDED)
    texts = [text for text in (*PROSE, *(text for _, text in dense(20))) if text.strip()]
    got, likely = tagger(texts)
    rows, memberships = features(got.distinct, tagger.vocabulary)
    with torch.no_grad():
        scores = network(torch.from_numpy(rows), torch.from_numpy(memberships), got)
    assert numpy.allclose(torch.softmax(scores, 1).numpy(), likely, atol=1e-3)


def test_the_embedded_model_is_small_and_attributed() -> None:
    files = [path for path in Path(EMBEDDED).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 6_000_000
    assert (EMBEDDED.parent / "ATTRIBUTION.md").is_file()
