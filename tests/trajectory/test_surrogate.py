"""Surrogates have one form, say nothing of their values, and follow from key and value alone."""

import json

from hypothesis import given
from hypothesis import strategies as st

from governance.policy.redaction import DEFAULT_ENTITIES
from trajectory.surrogate import FORM, LENGTH, scope_key, surrogate

KEY = scope_key(b"k" * 32, "acme", "conversation", "1")


@given(st.sampled_from(sorted(DEFAULT_ENTITIES)), st.text())
def test_every_surrogate_has_one_form(entity: str, value: str) -> None:
    made = surrogate(KEY, entity, value)
    assert len(made) == LENGTH
    assert FORM.fullmatch(made)
    assert json.dumps(made) == f'"{made}"'
    assert surrogate(KEY, entity, value) == made


def test_types_of_others_have_a_word_too() -> None:
    assert FORM.fullmatch(surrogate(KEY, "EMPLOYEE_NUMBER", "1"))
    assert FORM.fullmatch(surrogate(KEY, "X1", "1"))
    assert FORM.fullmatch(surrogate(KEY, "9", "1"))


def test_scopes_types_and_spellings_differ() -> None:
    other = scope_key(b"k" * 32, "acme", "conversation", "2")
    made = {
        surrogate(key, entity, value)
        for key in (KEY, other)
        for entity in ("US_SSN", "NATIONAL_ID")
        for value in ("123-45-6789", "123456789")
    }
    assert len(made) == 8
    assert scope_key(b"k", "ab", "c") != scope_key(b"k", "a", "bc")
