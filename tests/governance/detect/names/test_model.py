"""Names models that policy asks for: loaded, asked once, and what happens when one is not there."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from governance.detect.finding import Unit
from governance.detect.names.model import NamesModel, segments
from governance.detect.names.readers import Labelled
from governance.detect.normalized_text import view_of
from governance.detect.offline_imports import load
from governance.redact.encoded_text import encoded_in
from tests.governance.redaction_support import SCOPE, made
from trajectory.errors import ConfigurationError


@pytest.mark.parametrize("length", [0, 1, 319, 320, 321, 5000])
def test_segments_are_the_whole_text(length: int) -> None:
    text = ("word Name\n" * 600)[:length]
    pieces = list(segments(text))
    assert "".join(piece for _, piece in pieces) == text
    assert all(text[at : at + len(piece)] == piece for at, piece in pieces)


def test_texts_that_differ_in_numbers_are_asked_about_once() -> None:
    asked: list[str] = []

    def read(texts: Sequence[str]) -> Iterator[list[Labelled]]:
        for text in texts:
            asked.append(text)
            at = text.index("Zorv")
            yield [("PERSON", at, at + 4)]

    model = NamesModel(read, ("PERSON",), frozenset({"PERSON"}), version="1")
    texts = [f"order 4{n}7 of Zorv, paid on 2024-05-1{n}" for n in range(5)]
    found = model.find([Unit(view_of(text)) for text in texts])
    assert [text[f.start : f.end] for text, (f,) in zip(texts, found, strict=True)] == ["Zorv"] * 5
    assert len(asked) == 1


def test_a_missing_model_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match="en_no_such_pipeline"):
        made(names={"model": "en_no_such_pipeline"})


def test_a_pipeline_of_the_users_own_is_loaded_by_its_folder(tmp_path: Path) -> None:
    spacy = load("spacy")
    nlp = spacy.blank("en")
    ner = nlp.add_pipe("ner")
    ner.add_label("GPE")
    doc = nlp.make_doc("Her sister lives in Nairobi now.")
    example = spacy.training.Example.from_dict(doc, {"entities": [(20, 27, "GPE")]})
    optimizer = nlp.initialize(lambda: [example])
    for _ in range(30):
        nlp.update([example], sgd=optimizer)
    nlp.to_disk(tmp_path)
    redactor = made(names={"model": str(tmp_path)}, entities={"LOCATION": "drop"})
    clean = redactor.redact_text("Her sister lives in Nairobi now.", scope=SCOPE).text
    assert clean == "Her sister lives in <LOCATION> now."


@pytest.mark.parametrize(
    "name", ["Mikhail-Pillai", "Silvano-Olson", "Lionel/Walter", "Sivert+Kelly", "Ugo-Mutua1985"]
)
def test_a_name_that_says_something_as_base64_by_chance_is_a_name(name: str) -> None:
    (found,) = encoded_in(name)
    assert found.text is not None
    assert made(names={"model": "embedded"}).redact_text(name, scope=SCOPE).text != name


def test_a_missing_library_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match="gliner:no/such-model"):
        made(names={"model": "gliner:no/such-model"})


@pytest.mark.slow
def test_a_token_classifier_of_transformers_is_loaded_by_its_folder(tmp_path: Path) -> None:
    import torch
    from transformers import BertConfig, BertForTokenClassification, BertTokenizerFast

    letters = [chr(code) for code in range(33, 127)]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters)]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    labels = {0: "O", 1: "B-PER", 2: "I-PER"}
    network = BertForTokenClassification(
        BertConfig(vocab_size=len(words), intermediate_size=8, id2label=labels, **size)
    )
    with torch.no_grad():
        network.classifier.weight.zero_()
        network.classifier.bias.copy_(torch.tensor([0.0, 0.0, 9.0]))
    network.save_pretrained(tmp_path)
    BertTokenizerFast(str(tmp_path / "vocab.txt"), do_lower_case=False).save_pretrained(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        NamesModel.load(f"transformers:{tmp_path}/no-such-model", frozenset({"PERSON"}))
    loaded = NamesModel.load(f"transformers:{tmp_path}", frozenset({"PERSON"}))
    (found_there,) = loaded.find([Unit(view_of("Zorv Kelbin"))], [[]])
    assert [(f.entity, f.start, f.end) for f in found_there] == [("PERSON", 0, 11)]
