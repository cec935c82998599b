"""The shop's tool server: an MCP server (official SDK, streamable HTTP) with the tool ``quote``.

``python -m examples.practice.tools --port N [--seed S] [--failures SHARE]`` serves ``/mcp``. Some
quotes name a contact person (personal data, from the seed); an item that the shop does not sell
and a busy price service are tool errors.
"""

import argparse
import random
import signal
import threading
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from examples.practice.planted_values import PlantedValue
from examples.practice.shop import PRICES, money, total_cents
from examples.practice.tasks import contact_for
from trajectory.http_server import HttpLimits, HttpServer

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_LIMITS = HttpLimits(request_seconds=120, write_seconds=120, waiting=1024)
"""Agents keep connections open between their calls."""
BUSY = "The price service is busy, call again."


def quote_text(item: str, quantity: int, price_list: str, contact: tuple[PlantedValue, ...]) -> str:
    """Return what the tool answers.

    Raises:
        KeyError: the shop does not sell the item.
        ValueError: no such price list, or no such quantity.
    """
    text = f"total {money(total_cents(item, quantity, price_list))}"
    if contact:
        name, mail = contact
        text = f"Questions: {name.value}, {mail.value}\n{text}"
    return text


def error_text(message: str) -> str:
    """Return what the model is told when the tool fails, as the MCP SDK words it."""
    return f"Error executing tool quote: {message}"


class ToolServer:
    """The server's app and its counts."""

    def __init__(self, *, seed: int, failures: float = 0.0) -> None:
        self._seed = seed
        self._failures = failures
        self._draw = random.Random(seed)  # noqa: S311 - which calls fail, not secret
        self.requests: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def listen(self, port: int = 0, *, host: str = "127.0.0.1") -> HttpServer:
        """Return the server on a port; it answers at ``/mcp`` within its context.

        Raises:
            OSError: the port is taken.
        """
        from mcp.server.fastmcp import FastMCP
        from mcp.types import ToolAnnotations

        server = FastMCP("practice-shop", log_level="CRITICAL")
        only_reads = ToolAnnotations(readOnlyHint=True)
        server.add_tool(self.quote, structured_output=False, annotations=only_reads)
        app = _RequestCounter(server.streamable_http_app(), self.requests)
        return HttpServer(app, host=host, port=port, limits=_LIMITS)

    def quote(
        self,
        item: Annotated[str, Field(description="What is ordered, in the plural")],
        price_list: Literal["retail", "trade"],
        quantity: int,
    ) -> str:
        """Return the total price of so many pieces of an item, from one of the price lists."""
        from mcp.server.fastmcp.exceptions import ToolError

        if self._draw.random() < self._failures:
            self.calls["busy"] += 1
            raise ToolError(BUSY)
        if item not in PRICES:
            self.calls["unknown_item"] += 1
            raise ToolError("We do not sell that.")
        if quantity < 1:
            self.calls["bad_quantity"] += 1
            raise ToolError("The quantity must be at least 1.")
        self.calls["quoted"] += 1
        return quote_text(item, quantity, price_list, contact_for(self._seed, item, quantity))


class _RequestCounter:
    """Counts requests to ``/mcp`` by method on their way to the app."""

    def __init__(self, app: "ASGIApp", requests: Counter[str]) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] == "http" and scope["path"] == "/mcp":
            self._requests[scope["method"]] += 1
        await self._app(scope, receive, send)


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0, help="of the contact persons in quotes")
    parser.add_argument("--failures", type=float, default=0.0, help="share of quotes that fail")
    options = parser.parse_args()
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end.set())
    server = ToolServer(seed=options.seed, failures=options.failures)
    with server.listen(options.port, host=options.host):
        end.wait()


if __name__ == "__main__":
    main()
