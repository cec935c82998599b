"""JSON inside strings: literals with their places and key paths."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.redact.json_text import encoded, is_json, literals

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}', True),
        (" [1, 2]\n", True),
        ('"quoted"', True),
        ("{not json}", False),
        ("plain", False),
        ('{"a": NaN}', False),
        ("12", False),
        ("", False),
        ("[" * 500_000 + "]" * 500_000, False),
    ],
)
def test_what_is_walked_as_json(text: str, expected: bool) -> None:
    assert is_json(text) is expected


def test_paths_and_kinds() -> None:
    text = '{"a": ["x", 2], "b": {"c": "y"}, "d": true}'
    assert [(kind, keys, said) for _, _, keys, kind, said in literals(text)] == [
        ("key", ("",), "a"),
        ("string", ("a", "0"), "x"),
        ("number", ("a", "1"), "2"),
        ("key", ("a",), "b"),
        ("key", ("b", ""), "c"),
        ("string", ("b", "c"), "y"),
        ("key", ("b",), "d"),
    ]


@given(json_values, st.booleans(), st.sampled_from([None, 1]))
def test_all_strings_are_seen_at_their_places(
    value: object, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps([value], ensure_ascii=ascii_only, indent=indent)
    for start, end, _, kind, said in literals(text):
        assert (text[start:end] if kind == "number" else json.loads(text[start:end])) == said
    seen = sorted(said for _, _, _, kind, said in literals(text) if kind != "number")
    assert seen == sorted(_strings(json.loads(text)))


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [*value, *(text for inner in value.values() for text in _strings(inner))]
    if isinstance(value, list):
        return [text for inner in value for text in _strings(inner)]
    return []


def test_encoding_escapes_like_what_it_replaces() -> None:
    assert encoded("é", like='"x"') == '"\\u00e9"'
    assert encoded("é", like='"ü"') == '"é"'
