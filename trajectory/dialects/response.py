"""The response of a model call, whole or cut short, plain or streamed, as one JSON object."""

from collections.abc import Callable
from dataclasses import dataclass, field

from trajectory.canonical import JsonObject
from trajectory.dialects.wire import (
    UnreadableError,
    error_of,
    error_text,
    is_event_stream,
    parse_json,
    response_bytes,
    stream_objects,
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


def read_response(
    exchange: Exchange, assemble: Callable[[list[JsonObject]], JsonObject | None]
) -> ModelResponse:
    """Read the response, joining a stream's events with ``assemble``.

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
            return ModelResponse(None, error=error_text(data, response.status))
        if is_event_stream(exchange) or data.lstrip()[:6] in (b"data: ", b"event:"):
            return _streamed(stream_objects(data), assemble)
        value = parse_json(data, "response")
    except UnreadableError as error:
        if whole and response.status < 400:
            raise
        return ModelResponse(None, error=f"unreadable {error.args[0]}")
    if not isinstance(value, dict):
        raise UnreadableError("response:not-an-object")
    if isinstance(value.get("error"), dict | str) and value["error"]:
        return ModelResponse(value, error=error_of(value))
    return ModelResponse(value)


def _streamed(
    events: list[JsonObject], assemble: Callable[[list[JsonObject]], JsonObject | None]
) -> ModelResponse:
    error = next((error_of(event) for event in events if event.get("error")), None)
    return ModelResponse(assemble(events), streamed=True, error=error)
