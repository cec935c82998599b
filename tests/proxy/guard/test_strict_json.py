"""JSON that every receiver reads alike: what the guard takes, and what it refuses."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.guard.strict_json import AmbiguousJsonError, ExactNumber, folded, parse_strictly

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(VALUES)
def test_plain_json_is_read_as_everybody_reads_it(value: Any) -> None:
    text = json.dumps(value)
    assert parse_strictly(text) == json.loads(text)
    assert parse_strictly(json.dumps(value, ensure_ascii=False).encode()) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        '{"a": 1, "A": 2}',
        '{"method": "ping", "METHOD": "tools/call"}',
        '{"\\u0061": 1, "a": 2}',
        '{"a\\u200b": 1, "a": 2}',
        '{"ａ": 1, "a": 2}',
        '{"x": {"y": [{"z": 1, "z": 2}]}}',
        "NaN",
        '{"a": Infinity}',
        '{"a": 1e999}',
        "1" * 5000,
        '"\\ud800"',
        '{"\\udc00": 1}',
        "[" * 100 + "]" * 100,
        "[" * 100_000,
        '{"a": 1} x',
        '{"a": 1,}',
        "{'a': 1}",
        '{"a": 01}',
        '"a\nb"',
        "\ufeff{}",
        "",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(AmbiguousJsonError):
        parse_strictly(text)


@pytest.mark.parametrize("coding", ["utf-16", "utf-32", "latin-1"])
def test_only_utf_8_is_read(coding: str) -> None:
    with pytest.raises(AmbiguousJsonError):
        parse_strictly('{"method": "tools/cäll"}'.encode(coding))


def test_a_number_keeps_what_was_written() -> None:
    number = parse_strictly("1000.00000000000000000001")
    assert isinstance(number, ExactNumber)
    assert number == 1000.0
    assert str(number.exact) == "1000.00000000000000000001"
    assert parse_strictly("9007199254740993") == 2**53 + 1


def test_words_that_lenient_receivers_take_for_one_are_one() -> None:
    assert {folded(one) for one in ("Amount", "AMOUNT", "ａmount", "amo\u200bunt", "ámount")} == {
        "amount"
    }
