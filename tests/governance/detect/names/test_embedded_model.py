"""The embedded names model, asked by us: the tokens and the answers are those of spaCy."""

from functools import cache
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from governance.detect.names.embedded_model import reader_of
from governance.detect.names.model import EMBEDDED
from governance.detect.names.tokens import NamesTokenizer
from governance.detect.normalized_text import view_of
from governance.detect.offline_imports import load, without_heavy_packages
from tests.governance.hostile import HOSTILE, dense, drawn

PROSE = (
    "Brenda Thistlewood moved from Lisbon to Nairobi last spring; Dr. O'Neil-Garcia can't come.",
    "Mr. Jo\u00e3o \u201cZ\u00e9\u201d D\u00edaz (Acme Corp.) paid US$5,000 \u2014 \u20ac30 of it at 7a.m. :) in St. Gallen...",
    "I'm W3C's e.g., i.e. and/or 12km/h, 5kg+3 a.b A.B x=y U.S.A. http://a.example/b?c=d jo@mail.example",
    " def f(x):\n\n\treturn x-1  # Zorv's  idea\n\n\n\n\n\nregards,\nZorv Kelbin",
    "\u6c49\u5b57Maria \u2603Ann\u2603a \u0410\u043d\u043d\u0430, \u0627\u062d\u0645\u062f!",
    "foo:) (:bar 'em cannot gonna, C'mon 10am, ten-year-old ---- a--b 3-4 5^6 ..x x..y",
    "",
    " ",
)


@cache
def pipeline() -> Any:
    spacy = load("spacy")
    with without_heavy_packages():
        return spacy.load(EMBEDDED)


def pieces() -> list[str]:
    texts = chain(HOSTILE.values(), (text for _, text in (*dense(20), *drawn(7, 40, 300))))
    return [*PROSE, *dict.fromkeys(view_of(text[:200]).text for text in texts)]


def test_tokens_and_what_the_model_looks_at_are_those_of_spacy() -> None:
    texts = pieces()
    tokens = NamesTokenizer(pipeline())(texts)
    from spacy.attrs import IDX, IS_SPACE, LENGTH, NORM, PREFIX, SHAPE, SUFFIX

    at = 0
    for text, count in zip(texts, tokens.counts.tolist(), strict=True):
        doc = pipeline().make_doc(text)
        words = tokens.words[at : at + count]
        spans = zip(tokens.starts[at : at + count], tokens.ends[at : at + count], strict=True)
        mine = [text[start:end] for start, end in spans]
        assert mine == [token.text for token in doc]
        if text:
            theirs = doc.to_array([NORM, PREFIX, SUFFIX, SHAPE, IS_SPACE, IDX, LENGTH])
            assert (theirs[:, :4] == tokens.attributes[words]).all()
            assert (theirs[:, 4] == tokens.blank[words]).all()
            assert (theirs[:, 5] == tokens.starts[at : at + count]).all()
        at += count


_WORDS = ["a", "C", "id", "w", "o", "D", "Ann", "Zo", "cannot", "gonna", "we", "ve", "US", "FCA", "St", "Mr",
          "s", "\u043e", "\u00c9t", "O'Neil", "12", "a.m."]  # fmt: skip
_MARKS = list(",:=/<>~-()[]{}\"';!?.'_#*&+%$|@")


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.sampled_from(_WORDS) | st.sampled_from(_MARKS), min_size=1, max_size=8).map("".join)
)
def test_words_among_marks_are_split_as_by_spacy(piece: str) -> None:
    tokens = NamesTokenizer(pipeline())([piece])
    spans = zip(tokens.starts.tolist(), tokens.ends.tolist(), strict=True)
    mine = [piece[start:end] for start, end in spans]
    assert mine == [token.text for token in pipeline().make_doc(piece)]


def test_answers_are_those_of_spacy() -> None:
    texts = pieces()
    theirs = [
        [(ent.label_, ent.start_char, ent.end_char) for ent in doc.ents]
        for doc in pipeline().pipe(texts)
    ]
    assert sum(map(len, theirs)) > 50
    assert list(reader_of(pipeline())(texts)) == theirs


@pytest.mark.parametrize("count", [0, 1, 3])
def test_texts_are_answered_one_by_one_and_together(count: int) -> None:
    read = reader_of(pipeline())
    together = list(read(PROSE[:count]))
    assert together == [answer for text in PROSE[:count] for answer in read([text])]
