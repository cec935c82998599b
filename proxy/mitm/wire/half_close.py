"""Clients that close their sending side: they may still read, so the call goes on.

An upstream is told the same way that it would be without a gateway: its connection is closed on
one side too. Most take that for a client that is gone and stop, and then so does the call.
"""

import asyncio
import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mitmproxy import connection
from mitmproxy.proxy import commands
from mitmproxy.proxy.layers.http._events import RequestEndOfMessage
from OpenSSL import SSL


@dataclass
class HalfClose:
    """A client that will send nothing more."""

    client: connection.Client
    gone: bool = False
    """It has broken the connection off: it does not read either."""


@dataclass
class ClientHalfClosedHook(commands.StartHook):  # type: ignore[no-untyped-call]
    """Asks whether a client still reads; mitmproxy itself cannot tell."""

    data: HalfClose


class RequestHalfClosed(RequestEndOfMessage):
    """The client closed its sending side after its request's end."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How soon a client that sends nothing more, and is sent nothing, is asked for."""

    look_seconds: float = 2.0
    """Between two looks at what the kernel knows of it."""
    idle_seconds: int = 20
    """Silence before the kernel asks it for the first time."""
    interval_seconds: int = 10
    """Between two questions; the kernel of a client that closed answers no when it has forgotten
    the connection, after a minute on Linux."""
    questions: int = 3
    """Unanswered ones after which it counts as gone."""


PATIENCE = Patience()

_TCP_CLOSE = b"\x07"
_MARK = "headrace_half_closed"


def half_close(server: connection.Connection) -> commands.CloseTcpConnection:
    """Return the command that closes our side of an upstream's connection, and no more."""
    setattr(server, _MARK, True)
    return commands.CloseTcpConnection(server, half_close=True)


def as_meant(command: commands.Command) -> commands.Command:
    """Return a command as it was meant: within a tunnel mitmproxy makes whole closes of half ones."""
    if type(command) is not commands.CloseConnection:
        return command
    server = command.connection
    if getattr(server, _MARK, False) and server.state & connection.ConnectionState.CAN_WRITE:
        return commands.CloseTcpConnection(server, half_close=True)
    return command


class Hearing:
    """Finds out whether a client that sends nothing more still reads, from the transport below."""

    def __init__(self, handlers: Callable[[], Mapping[Any, Any]]) -> None:
        self._handlers = handlers

    def client_half_closed(self, data: HalfClose) -> None:
        """A reset closes the transport at once, an end of input leaves it open for writing."""
        transport = self._transport(data.client)
        data.gone = transport is None or transport.writer.is_closing()
        if not data.gone and transport is not None:
            _ask_for_life(transport.writer.get_extra_info("socket"))
            self._later(data.client)

    def _transport(self, client: connection.Client) -> Any:
        handler = self._handlers().get(client.id)
        transport = handler.transports.get(client) if handler is not None else None
        return transport if transport is not None and transport.writer is not None else None

    def _later(self, client: connection.Client) -> None:
        asyncio.get_running_loop().call_later(PATIENCE.look_seconds, self._look, client)

    def _look(self, client: connection.Client) -> None:
        """End the call of a client that has gone meanwhile: nobody reads, so no event tells it."""
        transport = self._transport(client)
        if transport is None or transport.writer.is_closing():
            return
        if _stands(transport.writer.get_extra_info("socket")):
            self._later(client)
        elif transport.handler is not None:
            transport.handler.cancel("the client is gone")


def _ask_for_life(client: Any) -> None:
    """Let the kernel ask a silent client whether it is there; one that is closed answers no."""
    with suppress(OSError, AttributeError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, PATIENCE.idle_seconds),
            (socket.TCP_KEEPINTVL, PATIENCE.interval_seconds),
            (socket.TCP_KEEPCNT, PATIENCE.questions),
        ):
            client.setsockopt(socket.IPPROTO_TCP, option, value)


def _stands(client: Any) -> bool:
    """Tell whether the kernel still holds a connection; where it does not say so, it does."""
    with suppress(OSError, AttributeError):
        return bool(client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != _TCP_CLOSE)
    return True


def send_close(
    layer: Any, command: commands.CloseConnection
) -> Generator[commands.Command, Any, None]:
    """Close an upstream's TLS connection; one that is still read from is told in TLS first."""
    if isinstance(command, commands.CloseTcpConnection) and command.half_close:
        with suppress(SSL.Error):
            layer.tls.shutdown()
        yield from layer.tls_interact()
    yield command
