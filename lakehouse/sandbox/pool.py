"""Processes for queries, started before they are needed: a query then waits for no start."""

import subprocess
import threading
from collections import deque

from lakehouse.sandbox.client import start_worker
from lakehouse.sandbox.stream import end


class Workers:
    """Keeps a few processes waiting. Each answers one query and ends; none is used twice."""

    def __init__(self, spare: int = 2) -> None:
        self._spare = spare
        self._waiting: deque[subprocess.Popen[bytes]] = deque()
        self._mutex = threading.Lock()
        self._closed = False
        self._fill()

    def take(self) -> "subprocess.Popen[bytes]":
        """Return a process that waits for its query, and start another in its place."""
        with self._mutex:
            process = self._waiting.popleft() if self._waiting else None
        if process is not None and process.poll() is not None:
            end(process)
            process = None
        self._fill()
        return process or start_worker()

    def close(self) -> None:
        """End the processes that wait."""
        with self._mutex:
            self._closed = True
            waiting, self._waiting = list(self._waiting), deque()
        for process in waiting:
            end(process)

    def _fill(self) -> None:
        with self._mutex:
            while not self._closed and len(self._waiting) < self._spare:
                self._waiting.append(start_worker())
