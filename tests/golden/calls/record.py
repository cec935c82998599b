"""Records golden wire files: official SDKs, the real gateway, a scripted provider.

Run ``python -m tests.golden.calls.record [scenario …]`` from the repository's root.
Each ``<scenario>.json`` holds the exchanges as the gateway's spool gave them, without what differs
from machine to machine, and the calls that they are read as now: look at the difference before
you commit it.
"""

import asyncio
import base64
import json
import sys
import tempfile
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.golden.calls.replay import CONFIGURED, FOLDER, call_json
from tests.interop.clients.conversations import CONVERSATIONS, conversing
from tests.interop.clients.drivers import BOTO_DRIVERS, HTTPX_DRIVERS, ROUTES, Wire
from tests.interop.clients.tools import over_sse, streamable, tool_servers
from tests.proxy.gateway_process import GatewayProcess
from tests.support.provider import provider
from tests.support.upstream import Upstream
from trajectory.dialects.registry import read_calls
from trajectory.exchange import Exchange

_VARYING = (
    "user-agent",
    "host",
    "date",
    "server",
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-",
    "x-stainless-",
    "x-amz-date",
    "amz-sdk-",
    "anthropic-client",
    "x-amz-security-token",
    "sec-websocket-key",
    "sec-websocket-accept",
)
_KEPT = ("x-stainless-retry-count",)


def record(exchange: Exchange) -> dict[str, Any]:
    """Return one exchange and its calls as JSON."""
    exchange = replace(exchange, upstream="http://upstream:1")
    request, response = exchange.request, exchange.response
    return {
        "exchange": {
            "method": request.method,
            "path": request.path,
            "query": request.query,
            "route": exchange.route,
            "mode": exchange.mode,
            "upstream": exchange.upstream,
            "request_headers": _headers(request.headers),
            "request_body": _body(request.body),
            "status": response.status if response else None,
            "response_headers": _headers(response.headers) if response else [],
            "response_body": _body(response.body if response else b""),
            "outcome": exchange.outcome.value,
        },
        "calls": [call_json(call) for call in read_calls(exchange, CONFIGURED)],
    }


def _headers(headers: tuple[tuple[str, str], ...]) -> list[list[str]]:
    return [
        [name, value] for name, value in headers if name in _KEPT or not name.startswith(_VARYING)
    ]


def _body(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def save(name: str, exchanges: list[Exchange]) -> None:
    """Write one golden file."""
    records = [record(exchange) for exchange in exchanges]
    text = json.dumps(records, indent=1, ensure_ascii=False)
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def record_http(wanted: set[str]) -> None:
    """Record the drivers that speak plain HTTP."""
    drivers = {**HTTPX_DRIVERS, **BOTO_DRIVERS}
    with tempfile.TemporaryDirectory() as home, Upstream(provider) as upstream:
        routes = [{"name": name, "upstream": upstream.url} for name in ROUTES]
        with GatewayProcess(Path(home), {"routes": routes}) as gateway:
            for name, (route, driver) in drivers.items():
                if not wanted or name in wanted:
                    upstream.seen.clear()
                    driver(Wire(f"{gateway.url}/{route}", gateway.key))
                    save(name, gateway.exchanges(len(upstream.seen)))


def record_conversations(wanted: set[str]) -> None:
    """Record WebSocket conversations."""
    for name, driver in CONVERSATIONS.items():
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as home, conversing() as address:
            routes = [{"name": "openai", "upstream": address}]
            with GatewayProcess(Path(home), {"routes": routes}) as gateway:
                driver(Wire(f"{gateway.url}/openai", gateway.key))
                found = [r for r in gateway.records(9, seconds=1) if isinstance(r, Exchange)]
                save(name, found)


def record_tools(wanted: set[str]) -> None:
    """Record MCP over each of its HTTP transports."""
    sessions: dict[str, tuple[str, Any]] = {
        "mcp_json": ("json", streamable),
        "mcp_stream": ("stream", streamable),
        "mcp_resumed": ("stream", partial(streamable, resumed=True)),
        "mcp_sse": ("sse", over_sse),
    }
    if wanted and not wanted & set(sessions):
        return
    with tempfile.TemporaryDirectory() as home, tool_servers() as addresses:
        routes = [
            {"name": f"tools-{name}", "upstream": url, "kind": "tool"}
            for name, url in addresses.items()
        ]
        with GatewayProcess(Path(home), {"routes": routes}) as gateway:
            for name, (transport, session) in sessions.items():
                if not wanted or name in wanted:
                    asyncio.run(session(f"{gateway.url}/tools-{transport}", gateway.key))
                    found = [r for r in gateway.records(99, seconds=2) if isinstance(r, Exchange)]
                    save(name, found)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    record_http(set(sys.argv[1:]))
    record_conversations(set(sys.argv[1:]))
    record_tools(set(sys.argv[1:]))
