"""Patches between JSON documents."""

from hypothesis import given
from hypothesis import strategies as st

from trajectory.canonical import JsonValue, canonical_json
from trajectory.formats.document import apply, difference

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-1, 1) | st.text(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=1), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(JSON, JSON)
def test_the_patch_turns_one_into_the_other(made: JsonValue, wanted: JsonValue) -> None:
    assert canonical_json(apply(made, difference(made, wanted))) == canonical_json(wanted)


@given(JSON)
def test_equal_documents_have_an_empty_patch(value: JsonValue) -> None:
    assert difference(value, value) == {}


def test_integers_floats_and_booleans_differ() -> None:
    assert difference({"a": 1}, {"a": 1.0}) == {"fields": {"a": {"value": 1.0}}}
    assert difference([1], [True]) == {"items": {"0": {"value": True}}}


@given(JSON, JSON, JSON)
def test_a_patch_on_a_changed_document_does_not_raise(
    made: JsonValue, wanted: JsonValue, other: JsonValue
) -> None:
    apply(other, difference(made, wanted))
