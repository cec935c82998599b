"""Runs in canarywire's environment: its fake upstream, on a port of the system's choice, which is printed."""

import socket
import sys
from pathlib import Path

import uvicorn
from canarywire.capture.app import create_app
from canarywire.capture.recorder import Recorder

place = socket.create_server(("127.0.0.1", 0))
sys.stdout.write(f"{place.getsockname()[1]}\n")
sys.stdout.flush()
config = uvicorn.Config(
    create_app(Recorder(Path(sys.argv[1]))),
    log_level="warning",
    ws="websockets-sansio",
    lifespan="off",
)
uvicorn.Server(config).run(sockets=[place])
