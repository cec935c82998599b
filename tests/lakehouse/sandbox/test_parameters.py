"""Parameters keep their kinds on the way to the question's process."""

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse.sandbox.parameters import from_json, to_json

VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
        st.text(), st.binary(), st.decimals(allow_nan=False, allow_infinity=False), st.dates(),
        st.datetimes(timezones=st.sampled_from([UTC, None])), st.times(),  # type: ignore[arg-type]
    ),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text().filter(lambda name: name != "$kind"), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@settings(deadline=None)
@given(VALUES)
def test_values_come_back_as_they_went(value: Any) -> None:
    assert from_json(json.loads(json.dumps(to_json(value)))) == value


def test_kinds() -> None:
    values = [
        datetime(2026, 1, 1, tzinfo=UTC),
        date(2026, 1, 1),
        time(1, 2),
        Decimal("1.10"),
        b"\xff",
        timedelta(minutes=1),
    ]
    assert from_json(to_json(values)) == values
    for stranger in (object(), {"$kind": "date", "text": "x"}):
        with pytest.raises(TypeError):
            to_json(stranger)


@pytest.mark.parametrize("levels", [40, 900, 100_000])
def test_what_nests_too_deeply_is_refused(levels: int) -> None:
    value: Any = [1]
    for _ in range(levels):
        value = [value]
    with pytest.raises(TypeError, match="nest at most 32 deep"):
        to_json(value)
