"""A process that ends with the one that started it, however that one ends.

The starter holds one end of a pipe and gives the other to the process. When the starter is gone,
killed or not, the system closes its end, and the process asks itself to stop.
"""

import os
import signal
import threading
import time

VARIABLE = "HEADRACE_LIFELINE"
"""Tells a process of the pipe that it holds: its descriptor, and seconds to stop in."""


class Lifeline:
    """The starter's end of the pipe; it closes with this process."""

    def __init__(self) -> None:
        """Make the pipe."""
        self._theirs, self._ours = os.pipe()

    @property
    def passed(self) -> tuple[int, ...]:
        """The descriptors that a process must inherit."""
        return (self._theirs,)

    def environment(self, stop_seconds: float) -> dict[str, str]:
        """Return the environment of a process that ends with this one.

        Args:
            stop_seconds: how long it may take to stop before it is killed.
        """
        return {**os.environ, VARIABLE: f"{self._theirs}:{stop_seconds:g}"}


def hold_lifeline() -> None:
    """End this process once the one that started it is gone, where that one asked for it."""
    said = os.environ.pop(VARIABLE, "")  # no business of what this process starts
    if not said:
        return
    descriptor, _, seconds = said.partition(":")
    os.set_inheritable(int(descriptor), False)
    threading.Thread(
        target=_end_with_it, args=(int(descriptor), float(seconds)), daemon=True
    ).start()


def _end_with_it(descriptor: int, stop_seconds: float) -> None:
    os.read(descriptor, 1)  # nobody writes: it returns when the other end is closed
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(stop_seconds)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)  # with what it started
    os.kill(os.getpid(), signal.SIGKILL)
