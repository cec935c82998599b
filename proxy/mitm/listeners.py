"""The sockets on which a gateway listens; several workers may share them."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from proxy.certificate import tls_arguments
from trajectory.errors import ConfigurationError

_BACKLOG = 2048
_DOORS = {"reverse": "base_url", "regular": "forward", "transparent": "transparent"}
"""What each of mitmproxy's modes is for us."""
_BOTH = ("127.0.0.1", "::1")
"""What ``localhost`` stands for."""

type Address = tuple[str, int]


def _unusable(name: str, place: str, error: OSError) -> ConfigurationError:
    """Say why a place cannot be listened on, and which setting names another."""
    setting = "gateway." if name == "base_url" else f"gateway.{name}_"
    told = f"cannot listen on {place}: {error.strerror}"
    if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        return _NoSuchAddressError(f"{told}; {setting}host must be an address of this machine")
    if error.errno == errno.EACCES:
        return ConfigurationError(f"{told}; give {setting}port a number from 1024 on")
    return ConfigurationError(f"{told}; stop what listens there or set another {setting}port")


class Listeners:
    """Binds addresses before anything else starts, and keeps the sockets by purpose."""

    def __init__(self, *, shared: bool) -> None:
        """Begin without sockets; ``shared`` lets other workers bind the same ports."""
        self._shared = shared
        self._plain = False
        self.handler: Any = None
        """What serves a base-URL connection that the plain listener hands over."""
        self._sockets: dict[str, list[socket.socket]] = {}

    def bind(self, name: str, host: str, port: int | None) -> Address | None:
        """Bind a port; ``localhost`` is this machine in IPv4 and, where it has it, in IPv6.

        Raises:
            ConfigurationError: the port is taken, or the address is not one of this machine.
        """
        if port is None:
            return None
        first, *more = _BOTH if host == "localhost" else (host,)
        bound = self._bind(name, first, port)
        address = str(bound.getsockname()[0]), int(bound.getsockname()[1])
        self._sockets[name] = [bound]
        for other in more:
            with suppress(_NoSuchAddressError):
                self._sockets[name].append(self._bind(name, other, address[1]))
        return address

    def _bind(self, name: str, host: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # The protocol is named because asyncio sets TCP_NODELAY only where it is.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self._shared and name != "admin":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            bound.bind((host, port))
        except OSError as error:
            bound.close()
            raise _unusable(name, f"{host}:{port}", error) from None
        bound.setblocking(False)
        return bound

    def of(self, name: str) -> list[socket.socket]:
        """Return the sockets that were bound under a name."""
        return self._sockets[name]

    def keep_for_plain(self) -> None:
        """Leave the base-URL port to the plain listener; mitmproxy takes what that hands over."""
        self._plain = True

    def listen(
        self, secure: ssl.SSLContext | None = None
    ) -> Callable[[Any, str, int], Awaitable[list[Any]]]:
        """Return what mitmproxy's servers call to listen: they serve on the sockets bound before.

        Args:
            secure: TLS of the base-URL port, where that has a certificate of its own.
        """

        async def listen(instance: Any, _host: str, _port: int) -> list[Any]:
            if self._plain and instance.mode.type_name == "reverse":
                self.handler = instance.handle_stream
                return [_NoServer()]
            own = secure if instance.mode.type_name == "reverse" else None
            return [
                await asyncio.start_server(
                    instance.handle_stream, sock=bound, backlog=_BACKLOG, **tls_arguments(own)
                )
                for bound in self.of(_DOORS[instance.mode.type_name])
            ]

        return listen

    def close(self) -> None:
        """Close what is open."""
        for sockets in self._sockets.values():
            for bound in sockets:
                bound.close()
        self._sockets.clear()


class _NoSuchAddressError(ConfigurationError):
    """The address is none of this machine's."""


class _NoServer:
    """Stands for a server of mitmproxy's that listens nowhere: connections are handed to it."""

    sockets = ()

    def close(self) -> None:
        """There is nothing to close."""

    async def wait_closed(self) -> None:
        """There is nothing to wait for."""
