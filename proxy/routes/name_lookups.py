"""Addresses of names: a name whose lookup hangs holds one thread, and no other name.

Event loops look names up in a handful of threads, uvloop in two. One name server that does not
answer would so keep every call from connecting.
"""

import asyncio
import socket
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any

import aiohappyeyeballs

MOST_AT_ONCE = 256
"""Names that are looked up at once; for one more, the call fails as if it did not exist."""
_NEXT_ADDRESS_SECONDS = 0.25

type Places = list[tuple[Any, Any, int, str, Any]]
"""As ``getaddrinfo`` returns them."""


class NameLookups:
    """Looks names up, each once at a time; who asks for one that is being looked up waits with the others."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], Future[Places]] = {}
        self._lock = Lock()

    async def addresses(self, host: str, port: int) -> Places:
        """Return the addresses of a host, which may be an address itself.

        Raises:
            OSError: it has none, is no name, or too many others are being looked up.
        """
        try:
            numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric)
        except socket.gaierror:
            # It is running, so that who goes away cannot cancel it for the others.
            return await asyncio.wrap_future(self._looked_up((host, port)))
        except ValueError:
            raise OSError("not the name of a host") from None

    def _looked_up(self, name: tuple[str, int]) -> Future[Places]:
        with self._lock:
            if (found := self._open.get(name)) is not None:
                return found
            if len(self._open) >= MOST_AT_ONCE:
                raise OSError("too many names are being looked up")
            found = Future()
            found.set_running_or_notify_cancel()
            try:
                Thread(
                    target=self._look_up, args=(name, found), name="name-lookup", daemon=True
                ).start()
            except RuntimeError as error:
                raise OSError(str(error)) from None
            self._open[name] = found
            return found

    def _look_up(self, name: tuple[str, int], told: Future[Places]) -> None:
        places: Places = []
        problem: Exception | None = None
        try:
            places = socket.getaddrinfo(*name, type=socket.SOCK_STREAM)
        except Exception as error:  # noqa: BLE001 - whoever waits hears of it
            problem = error if isinstance(error, OSError) else OSError("not the name of a host")
        with self._lock:
            del self._open[name]
        if problem is None:
            told.set_result(places)
        else:
            told.set_exception(problem)


_lookups = NameLookups()


async def opened_socket(host: str, port: int) -> socket.socket:
    """Connect to a host; of its addresses the next is tried while the one before does not answer.

    Raises:
        OSError: it cannot be reached.
    """
    places = await _lookups.addresses(host, port)
    opened: socket.socket = await aiohappyeyeballs.start_connection(
        places, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS
    )
    return opened
