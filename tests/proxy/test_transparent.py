"""Transparent mode: redirected connections are opened, tunnelled or passed by what they are for."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.destinations import destination, install
from tests.proxy.conftest import Tls


def usable() -> bool:
    """Tell whether this machine lets a test redirect connections in a namespace of its own."""
    if os.geteuid() != 0 or not shutil.which("iptables") or not shutil.which("unshare"):
        return False
    rule = "iptables -t nat -A OUTPUT -p tcp -m owner --gid-owner 1 -j REDIRECT --to-ports 1"
    done = subprocess.run(["unshare", "-n", *rule.split()], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.skipif(not usable(), reason="needs root, iptables and network namespaces")
def test_a_sidecars_scene(tls: Tls, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *("unshare", "-n", sys.executable, "-m", "tests.proxy.transparent_scene"),
            *map(str, (tmp_path, tls.roots, tls.cert, tls.key)),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr + (tmp_path / "gateway.log").read_text()


def test_a_connection_to_the_gateway_itself_is_ended() -> None:
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        place = server.getsockname()
        client.connect(place)
        accepted, _ = server.accept()
        with accepted:
            assert destination(accepted) == place
            install(place[1])
            with pytest.raises(OSError, match="made to the gateway itself"):
                destination(accepted)
