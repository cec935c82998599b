"""Results keep their kind on the way to JSON and to table cells."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from headrace.render import cell, jsonable


@dataclass(frozen=True)
class Row:
    name: str
    at: datetime


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal(3), "3"),
        (Decimal("3.00"), "3.0"),
        (Decimal("0.25"), "0.25"),
        (Path("a/b"), '"a/b"'),
        (b"\x01\xff", '"01ff"'),
        (date(2026, 3, 1), '"2026-03-01"'),
        ((1, {2: None}), '[1, {"2": null}]'),
        (
            Row("x", datetime(2026, 3, 1, tzinfo=UTC)),
            '{"name": "x", "at": "2026-03-01T00:00:00+00:00"}',
        ),
    ],
)
def test_json_form(value: object, text: str) -> None:
    assert json.dumps(jsonable(value)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (True, "yes"), (1234567, "1,234,567"), (0.123456, "0.1235"), (["a"], '["a"]')],
)
def test_cell(value: object, text: str) -> None:
    assert cell(value) == text
