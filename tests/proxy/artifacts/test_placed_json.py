"""JSON whose values are placed: places count in bytes, and from either end."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.artifacts.placed_json import Edit, PlacedValue, further_items, in_bytes, spliced

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=8)


@given(st.lists(ANY_TEXT | st.integers(), max_size=3), st.booleans())
def test_further_items_are_what_a_list_goes_on_with(values: list[Any], plain: bool) -> None:
    text = "".join([f", {json.dumps(value, ensure_ascii=plain)}" for value in values])
    found = further_items(text.encode("utf-8", "surrogatepass"))
    assert found == json.loads(f"[null{text}]")[1:]


@pytest.mark.parametrize("between", [b"1", b".5", b"e1", b'"a"', b",", b"], [1", b", NaN"])
def test_what_is_no_further_item_is_refused(between: bytes) -> None:
    with pytest.raises(ValueError, match=r"Expecting|Extra|Illegal|JSON"):
        further_items(between)


@given(st.lists(ANY_TEXT, min_size=1, max_size=6))
def test_places_in_a_text_become_those_in_its_bytes(pieces: list[str]) -> None:
    text, at = "".join(pieces), 0
    spans = []
    for piece in pieces:
        spans.append(PlacedValue(at, at + len(piece), piece))
        at += len(piece)
    data = text.encode("utf-8", "surrogatepass")
    for start, end, piece in in_bytes(text, spans[::-1]):
        assert data[start:end] == piece.encode("utf-8", "surrogatepass")


def test_edits_count_from_either_end() -> None:
    assert spliced(b"abcdef", [Edit(1, 2, b"-"), Edit(-2, -1, b"+")]) == b"a-cd+f"
    assert spliced(b"abc", []) == b"abc"
