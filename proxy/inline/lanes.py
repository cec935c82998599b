"""The threads that look into requests: tenants take turns, and long requests do not hold up short ones.

Of each tenant one long and one short request is looked into at once, however many it sends. One lane
takes short requests alone. The interpreter shares its time between the threads that run.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

LANES = 4
"""Requests that are looked into at once: so many tenants may send long ones and wait for nobody."""
SHORT = 64 * 1024
"""Bytes up to which a request is short."""

type _Key = tuple[str, bool]
"""A tenant, and whether its requests are long."""


class FairLanes[W]:
    """Has work done by one of several workers, each in one thread at a time."""

    def __init__(self, workers: Sequence[W]) -> None:
        """Work with these; the first of several takes short requests alone."""
        self._free = [*workers]
        self._quick = workers[0] if len(workers) > 1 else None
        self._waiting: dict[_Key, deque[tuple[asyncio.Future[Any], Callable[[W], Any]]]] = {}
        """Whose turn it is next stands first."""
        self._running: set[_Key] = set()
        self._threads = ThreadPoolExecutor(len(workers), thread_name_prefix="inline")

    def close(self) -> None:
        """Let go of the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run[T](self, tenant: str, size: int, work: Callable[[W], T]) -> T:
        """Return what ``work`` returns for a tenant's request of so many bytes."""
        asked: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((tenant, size > SHORT), deque()).append((asked, work))
        self._start()
        return await asked

    def _start(self) -> None:
        """Begin what can be begun."""
        for key in [*self._waiting]:
            waiting = self._waiting[key]
            while waiting and waiting[0][0].done():  # nobody waits for it any more
                waiting.popleft()
            if not waiting:
                del self._waiting[key]
                continue
            worker = self._worker(is_long=key[1])
            if worker is None or key in self._running:
                continue
            asked, work = waiting.popleft()
            del self._waiting[key]
            if waiting:
                self._waiting[key] = waiting  # behind all others
            self._free.remove(worker)
            self._running.add(key)
            loop = asked.get_loop()
            done = loop.run_in_executor(self._threads, work, worker)
            done.add_done_callback(partial(self._ended, asked, key, worker))

    def _worker(self, *, is_long: bool) -> W | None:
        """Return one that is free for such a request."""
        fit = (one for one in self._free if not (is_long and one is self._quick))
        return next(fit, None)

    def _ended(
        self, asked: asyncio.Future[Any], key: _Key, worker: W, done: asyncio.Future[Any]
    ) -> None:
        self._running.discard(key)
        self._free.insert(0 if worker is self._quick else len(self._free), worker)
        if not (asked.done() or done.cancelled()):
            error = done.exception()
            if error is None:
                asked.set_result(done.result())
            else:
                asked.set_exception(error)
        self._start()
