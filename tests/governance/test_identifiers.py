"""Names of content: the short way to a message's name gives the same as the long one."""

import json

from hypothesis import given
from hypothesis import strategies as st

from governance.identifiers import Namer
from trajectory.canonical import canonical_json

NAMER = Namer(b"k" * 32)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(TEXT, st.lists(JSON, max_size=3), st.none() | TEXT)
def test_canonical_json_need_not_be_written_again(
    role: str, parts: list[object], name: str | None
) -> None:
    written = canonical_json(parts).decode()
    whole = {"role": role, "parts": json.loads(written)} | ({} if name is None else {"name": name})
    long = NAMER.message_id("acme", whole)
    assert NAMER.canonical_id("acme", canonical_json(whole)) == long
