"""Values of a statement's parameters as JSON and back, their kinds kept."""

import base64
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

type Parameters = list[Any] | dict[str, Any] | None

_KIND = "$kind"
_DEEPEST = 32
"""DuckDB works out the type of a value anew at each level, so that deep ones take for ever."""
_READERS: dict[str, Callable[[str], Any]] = {
    "timestamp": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "decimal": Decimal,
    "bytes": base64.b64decode,
    "seconds": lambda text: timedelta(seconds=float(text)),
}


def to_json(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON.

    Args:
        value: a parameter, or all of them.
        depth: how many lists and objects enclose it.

    Raises:
        TypeError: JSON and SQL have no such value, or it nests too deeply.
    """
    if depth > _DEEPEST:
        raise TypeError(f"lists and objects nest at most {_DEEPEST} deep")
    match value:
        case None | bool() | int() | float() | str():
            return value
        case datetime():
            return {_KIND: "timestamp", "text": value.isoformat()}
        case date():
            return {_KIND: "date", "text": value.isoformat()}
        case time():
            return {_KIND: "time", "text": value.isoformat()}
        case timedelta():
            return {_KIND: "seconds", "text": str(value.total_seconds())}
        case Decimal():
            return {_KIND: "decimal", "text": str(value)}
        case bytes():
            return {_KIND: "bytes", "text": base64.b64encode(value).decode()}
        case Mapping():
            if _KIND in value:
                raise TypeError(f"an object with the name {_KIND} cannot be a parameter")
            return {str(name): to_json(item, depth + 1) for name, item in value.items()}
        case list() | tuple():
            return [to_json(item, depth + 1) for item in value]
    raise TypeError(f"{type(value).__name__} cannot be a parameter")


def from_json(value: Any) -> Any:
    """Return the value that :func:`to_json` wrote."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _KIND in value:
        return _READERS[value[_KIND]](value["text"])
    return {name: from_json(item) for name, item in value.items()}
