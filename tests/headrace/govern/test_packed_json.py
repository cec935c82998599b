"""Packed JSON opens to what it was, however it was put together, and says when it is damaged."""

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.govern.packed_json import packed_json, unpacked

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4))
def test_it_opens_to_the_same_json(value: dict[str, object]) -> None:
    assert json.loads(b"".join(unpacked(packed_json(value)))) == value  # type: ignore[arg-type]


def test_long_lists_are_whole() -> None:
    value = {"rows": [[number, "x" * 300] for number in range(3_000)], "none": [], "n": 1}
    assert json.loads(b"".join(unpacked(packed_json(value)))) == value  # type: ignore[arg-type]


def test_streams_one_after_another_open_as_one() -> None:
    whole = zlib.compress(b'{"a":1,"b":') + packed_json({"c": [2]}) + zlib.compress(b"}")
    assert json.loads(b"".join(unpacked(whole))) == {"a": 1, "b": {"c": [2]}}


def test_nothing_opens_to_nothing() -> None:
    assert b"".join(unpacked(b"")) == b""


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_what_is_cut_off_or_damaged_is_refused(kept: int) -> None:
    with pytest.raises(zlib.error):
        b"".join(unpacked(zlib.compress(b"a" * 9_000 + b"b" * 99)[:kept]))
    with pytest.raises(zlib.error):
        b"".join(unpacked(zlib.compress(b"abc") + b"not packed"))
