"""Golden wire files as exchanges, a second apart."""

import base64
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.trajectory.world import CLIENT, START
from trajectory.exchange import (
    Exchange,
    ExchangeOutcome,
    HttpRequest,
    HttpResponse,
    SpoolPosition,
)

FOLDER = Path(__file__).parent
SCENARIOS = sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str, *, first: int = 0) -> list[Exchange]:
    """Return the exchanges of one golden file; ``first`` numbers the first one."""
    records = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return [_exchange(record, first + number) for number, record in enumerate(records)]


def _exchange(record: dict[str, Any], number: int) -> Exchange:
    started = START + timedelta(seconds=number)
    request = HttpRequest(
        method=record["method"],
        path=record["path"],
        query=record["query"],
        headers=tuple(record["request_headers"].items()),
        body=_body(record["request_body"]),
    )
    response = HttpResponse(
        status=record["status"],
        headers=tuple(record["response_headers"].items()),
        body=_body(record["response_body"]),
    )
    return Exchange(
        exchange_id=f"{number:032x}",
        client=CLIENT,
        route="model",
        mode="base_url",
        upstream="http://upstream:1",
        started_at=started,
        first_byte_at=started,
        ended_at=started + timedelta(milliseconds=500),
        request=request,
        response=response,
        outcome=ExchangeOutcome(record["outcome"]),
        position=SpoolPosition("w", 0, number),
    )


def _body(value: dict[str, str]) -> bytes:
    return value["text"].encode() if "text" in value else base64.b64decode(value["base64"])


def with_response_body(exchange: Exchange, body: bytes) -> Exchange:
    """Return the exchange with another response body."""
    assert exchange.response is not None
    return replace(exchange, response=replace(exchange.response, body=body))
