"""The response of a model call, whole or cut short, plain or streamed, as one JSON object."""

from collections.abc import Callable
from dataclasses import dataclass, field

from trajectory.canonical import JsonObject
from trajectory.dialects.streams import array_objects, streamed_objects
from trajectory.dialects.wire import (
    UnreadableError,
    error_of,
    error_text,
    objects,
    parse_json,
    response_bytes,
)
from trajectory.exchange import Exchange, ExchangeOutcome


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """What came back from a model."""

    value: JsonObject | None
    """The response in the shape of its unstreamed form; None when there is nothing usable."""
    streamed: bool = False
    error: str | None = field(default=None, repr=False)
    """Type and message of the provider's error, or fixed words when nothing came."""


type Assemble = Callable[[list[JsonObject]], JsonObject | None]


def read_response(exchange: Exchange, assemble: Assemble, *, arrays: bool = False) -> ModelResponse:
    """Read the response, joining a stream's events with ``assemble``.

    Args:
        exchange: what was captured.
        assemble: makes the unstreamed form of a stream's objects.
        arrays: this dialect streams a JSON array, piece by piece.

    Raises:
        UnreadableError: a complete and successful response cannot be read.
    """
    response = exchange.response
    whole = exchange.outcome is ExchangeOutcome.COMPLETE
    if response is None:
        return ModelResponse(None, error=f"no response: {exchange.outcome.value}")
    try:
        data = response_bytes(exchange)
        if response.status >= 400:
            return ModelResponse(None, error=error_text(data, response.status, response.headers))
        events = streamed_objects(exchange, data)
        if events is None and arrays and data.lstrip()[:1] == b"[":
            events = objects(parse_json(data, "response")) if whole else array_objects(data)
        if events is not None:
            return _streamed(events, assemble)
        value = parse_json(data, "response")
    except UnreadableError as error:
        if whole and response.status < 400:
            raise
        return ModelResponse(None, error=f"unreadable {error.args[0]}")
    if not isinstance(value, dict):
        raise UnreadableError("response:not-an-object")
    return ModelResponse(value, error=_error_told(value))


def _streamed(events: list[JsonObject], assemble: Assemble) -> ModelResponse:
    error = next((_error_in(event) for event in events if _is_error(event)), None)
    value = assemble(events)
    return ModelResponse(value, streamed=True, error=error or _error_told(value or {}))


def _is_error(event: JsonObject) -> bool:
    return bool(event.get("error")) or "error" in (event.get("type"), event.get("object"))


def _error_in(event: JsonObject) -> str:
    """Return what an error's event says; some have its fields beside their type."""
    said = {name: value for name, value in event.items() if value != "error"}
    return error_of(event if event.get("error") else said) or "error"


def _error_told(value: JsonObject) -> str | None:
    """Return the error that an answer itself tells of."""
    told = value.get("error")
    return error_of(value) or "error" if isinstance(told, dict | str) and told else None
