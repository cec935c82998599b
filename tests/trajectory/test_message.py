"""A message's parts are cut out of its canonical JSON as they would be written alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory.canonical import canonical_json
from trajectory.message import Message, OpaquePart, TextPart

TEXTS = st.text() | st.sampled_from(['"parts":[]', '","parts":[],"', "\\", "\ud800", ""])
PARTS = st.builds(TextPart, TEXTS) | st.builds(
    OpaquePart, st.dictionaries(TEXTS, TEXTS, max_size=2) | st.lists(TEXTS, max_size=2)
)


@given(role=TEXTS, parts=st.lists(PARTS, max_size=3), name=st.none() | TEXTS)
def test_the_parts_alone(role: str, parts: list[Any], name: str | None) -> None:
    message = Message(role, tuple(parts), name)
    assert message.canonical_parts() == canonical_json(message.to_json()["parts"])


@pytest.mark.parametrize("name", [None, '"parts":[]'])
def test_no_parts(name: str | None) -> None:
    assert Message('"parts":[]', (), name).canonical_parts() == b"[]"
