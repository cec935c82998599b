"""Transparent mode: redirected connections are opened, tunnelled or passed by what they are for."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.mitm.interception import destination, install
from tests.support.tls import Tls


def usable() -> bool:
    """Tell whether this machine lets a test redirect connections in a namespace of its own."""
    if os.geteuid() != 0 or not shutil.which("iptables") or not shutil.which("unshare"):
        return False
    rule = "-t nat -A OUTPUT -p tcp -m owner --gid-owner 1 -j REDIRECT --to-ports 1"
    return all(
        subprocess.run(
            ["unshare", "-n", program, *rule.split()], capture_output=True, check=False
        ).returncode
        == 0
        for program in ("iptables", "ip6tables")
    )


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
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("listens", "called"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")]
)
def test_a_connection_to_the_gateway_itself_is_ended(listens: str, called: str) -> None:
    family = socket.AF_INET6 if ":" in listens else socket.AF_INET
    with socket.socket(family) as server:
        server.bind((listens, 0))
        server.listen()
        place = called, server.getsockname()[1]
        client = socket.create_connection(place)
        accepted, _ = server.accept()
        with accepted, client:
            assert destination(accepted) == place
            install(place[1])
            with pytest.raises(OSError, match="made to the gateway itself"):
                destination(accepted)
