"""Ports for programs that must know theirs before they start."""

import fcntl
import socket
import tempfile
from pathlib import Path

_FIRST, _LAST = 20_000, 30_000
"""Below what systems give to connections and to port 0, so that nobody takes one by chance."""


def free_port() -> int:
    """Return a port that nobody listens on and that no other test on this machine is given."""
    with (Path(tempfile.gettempdir()) / "headrace-test-ports").open("a+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        port = int(file.read() or _FIRST)
        while not _is_free(port := port + 1 if port < _LAST else _FIRST):
            pass
        file.truncate(0)
        file.write(str(port))
    return port


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
