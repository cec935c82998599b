"""JSON that the event loop reads and writes: a request with millions of values would hold up every call."""

import json
from typing import Any

MOST_VALUES = 500_000
"""Values in one body, taken for as many as it has commas and brackets: so many take 0.1 s. The longest
conversations have a tenth; bytes of pictures have none."""


class TooManyValuesError(ValueError):
    """A body has more values than are read in one go."""


def check_values(body: bytes) -> None:
    """Count a body's values.

    Raises:
        TooManyValuesError: it has more than :data:`MOST_VALUES`.
    """
    if len(body) > MOST_VALUES and sum(map(body.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise TooManyValuesError(f"more than {MOST_VALUES} values")


def parsed(body: bytes) -> Any:
    """Return the value of a body.

    Raises:
        ValueError: it is no JSON, or has more values than :data:`MOST_VALUES`.
        RecursionError: it is too deep.
    """
    check_values(body)
    return json.loads(body)


def dumped(value: object) -> bytes:
    """Return a value as JSON, in valid UTF-8."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a pair can only be written as an escape
        return json.dumps(value, separators=(",", ":")).encode()
