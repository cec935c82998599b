"""Who listens on a port is found, whatever else a process opens and closes meanwhile."""

import os
import socket

from headrace.app.listener import listener_on


def test_a_file_that_is_closed_meanwhile_hides_no_other() -> None:
    low = os.open(os.devnull, os.O_RDONLY)
    with socket.create_server(("127.0.0.1", 0)) as server:
        # The list of our files is read under this number, and closed when the list is gone through.
        os.close(low)
        assert listener_on(server.getsockname()[1]).startswith(f"process {os.getpid()} (")
