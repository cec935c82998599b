"""Files reach the disk in groups, on a thread of its own; who does not ask for the disk does not wait."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future

from proxy.spool.states import SpoolUnavailableError

_IDLE_SECONDS = 1.0


class DiskSync:
    """Calls ``fdatasync`` for what was written, as often as ``seconds`` at most."""

    def __init__(
        self,
        seconds: float,
        *,
        where: str,
        failed: Callable[[OSError], None],
        turn: Callable[[], None],
    ) -> None:
        """Prepare.

        Args:
            seconds: between two groups, where nobody waits.
            where: what is synced, for errors.
            failed: told, in the thread, that the disk did not take what was written.
            turn: called in the thread at each turn, once a second at least.
        """
        self._seconds = seconds
        self._where = where
        self._failed = failed
        self._turn = turn
        self._mutex = threading.Lock()
        self._dirty: list[int] = []
        """Files that were written; those that are to be closed too are there as their complement."""
        self._waiting: list[Future[None]] = []
        self._wake = threading.Event()
        self._urgent = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._keep, name="spool-keeper", daemon=True)

    def start(self) -> None:
        """Begin to sync."""
        self._thread.start()

    def mark(self, file: int) -> None:
        """Sync a file soon."""
        if file not in self._dirty:
            self._add(file)

    def retire(self, file: int) -> None:
        """Sync a file, then close it."""
        self._add(~file)

    def _add(self, entry: int) -> None:
        with self._mutex:
            self._dirty.append(entry)
        self._wake.set()

    def wait(self, file: int) -> Future[None]:
        """Sync at once; the result comes when all that was written before is on the disk."""
        future: Future[None] = Future()
        with self._mutex:
            self._waiting.append(future)
            if file >= 0:
                self._dirty.append(file)
        self._urgent.set()
        self._wake.set()
        return future

    def stop(self) -> None:
        """End the thread; what is retired from now on :meth:`sync` takes."""
        self._closing = True
        self._urgent.set()
        self._wake.set()
        self._thread.join()

    def _keep(self) -> None:
        while not self._closing:
            self._wake.wait(_IDLE_SECONDS)
            self._wake.clear()
            self._urgent.clear()
            self.sync()
            self._turn()
            self._urgent.wait(self._seconds)

    def sync(self) -> None:
        """Sync what was written, close what is retired, and tell who waits."""
        with self._mutex:
            dirty, waiting = self._dirty, self._waiting
            self._dirty, self._waiting = [], []
        problem: OSError | None = None
        files = dict.fromkeys(max(one, ~one) for one in dirty)
        steps: list[tuple[Callable[[int], None], int]] = [(os.fdatasync, one) for one in files]
        # Some file systems say only at the end that they did not take what was written.
        steps += [(os.close, ~one) for one in dirty if one < 0]
        for step, file in steps:
            try:
                step(file)
            except OSError as error:
                problem = error
                self._failed(error)
        for future in waiting:
            if not future.set_running_or_notify_cancel():
                continue  # nobody waits for it any more
            if problem is None:
                future.set_result(None)
            else:
                text = f"{self._where}: sync failed: {problem.strerror}; mend the disk"
                future.set_exception(SpoolUnavailableError(text))
