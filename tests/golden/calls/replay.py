"""Golden wire files: what the gateway captured of a conversation, and the calls it must be read as."""

import base64
import json
from dataclasses import fields, is_dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from tests.trajectory.world import CLIENT, START
from trajectory.call import Call
from trajectory.dialects.http_tools import HttpTools
from trajectory.dialects.operations import operation
from trajectory.exchange import (
    Exchange,
    ExchangeOutcome,
    HttpRequest,
    HttpResponse,
    SpoolPosition,
)
from trajectory.message import Message

FOLDER = Path(__file__).parent
CONFIGURED = (
    HttpTools(
        {
            "shop": [
                operation("get_order", "GET", "/orders/{order_id:integer}"),
                operation("create_order", "POST", "/orders"),
                operation("watch_order", "GET", "/orders/{order_id:integer}/events"),
            ]
        }
    ),
)
"""What an installation would add to the dialects that everybody knows."""

SCENARIOS = sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str) -> list[tuple[Exchange, list[Any]]]:
    """Return the exchanges of one golden file, each with the calls expected of it."""
    records = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return [
        (_exchange(record["exchange"], number), record["calls"])
        for number, record in enumerate(records)
    ]


def _exchange(record: dict[str, Any], number: int) -> Exchange:
    started = START + timedelta(seconds=number)
    request = HttpRequest(
        method=record["method"],
        path=record["path"],
        query=record["query"],
        headers=tuple((n, v) for n, v in record["request_headers"]),
        body=_bytes(record["request_body"]),
    )
    response = None
    if record["status"] is not None:
        headers = tuple((n, v) for n, v in record["response_headers"])
        response = HttpResponse(record["status"], headers, _bytes(record["response_body"]))
    return Exchange(
        exchange_id=f"{number:032x}",
        client=CLIENT,
        route=record["route"],
        mode=record["mode"],
        upstream=record["upstream"],
        started_at=started,
        first_byte_at=started,
        ended_at=started + timedelta(milliseconds=500),
        request=request,
        response=response,
        outcome=ExchangeOutcome(record["outcome"]),
        position=SpoolPosition("w", 0, number),
    )


def _bytes(value: dict[str, str]) -> bytes:
    return value["text"].encode() if "text" in value else base64.b64decode(value["base64"])


def call_json(call: Call) -> dict[str, Any]:
    """Return what was read from an exchange as JSON; what says nothing is left out."""
    values = {f.name: _json(getattr(call, f.name)) for f in fields(call) if f.name != "exchange"}
    return {name: value for name, value in values.items() if value not in (None, [], {}, 0, False)}


def _json(value: Any) -> Any:
    if isinstance(value, Message):
        return value.to_json()
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        found = {f.name: _json(getattr(value, f.name)) for f in fields(value)}
        return {name: item for name, item in found.items() if item is not None}
    if isinstance(value, tuple | list):
        return [_json(item) for item in value]
    if isinstance(value, dict):
        return {name: _json(item) for name, item in value.items()}
    return value
