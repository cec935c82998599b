"""An S3 server in a process of its own, on a port that is free: it says which, then serves until killed.

Usage: python -m tests.lakehouse.stores.s3_server. A thread of the tests' own process would not do:
delta-rs waits for the network with Python's lock held.
"""

import logging
import time

from moto.server import ThreadedMotoServer


def main() -> None:
    """Serve until killed; the line on stdout is the address."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)  # noqa: T201 - the answer to who started it
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
