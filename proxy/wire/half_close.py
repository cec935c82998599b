"""Clients that close their sending side: they may still read, so the call goes on.

An upstream is told the same way that it would be without a gateway: its connection is closed on
one side too. Most take that for a client that is gone and stop, and then so does the call.
"""

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
    """Finds out whether the connection of a client stands, from the transport below."""

    def __init__(self, handlers: Callable[[], Mapping[Any, Any]]) -> None:
        self._handlers = handlers

    def client_half_closed(self, data: HalfClose) -> None:
        """A reset closes the transport at once, an end of input leaves it open for writing."""
        handler = self._handlers().get(data.client.id)
        transport = handler.transports.get(data.client) if handler is not None else None
        data.gone = transport is None or transport.writer is None or transport.writer.is_closing()


def send_close(
    layer: Any, command: commands.CloseConnection
) -> Generator[commands.Command, Any, None]:
    """Close an upstream's TLS connection; one that is still read from is told in TLS first."""
    if isinstance(command, commands.CloseTcpConnection) and command.half_close:
        with suppress(SSL.Error):
            layer.tls.shutdown()
        yield from layer.tls_interact()
    yield command
