"""TLS greetings of clients: one that does not end is cut off."""

from collections.abc import Generator
from typing import Any

from mitmproxy.proxy import commands
from mitmproxy.proxy.layers import tls

_GREETING_BYTES = 16 * 1024
"""Real greetings take about 2 kB, with keys that quantum computers do not break."""
_receive = tls.ClientTLSLayer.receive_handshake_data


def receive_greeting(
    layer: Any, data: bytes
) -> Generator[commands.Command, Any, tuple[bool, str | None]]:
    """Read more of a greeting; stock code keeps it all, and reads it from the start each time."""
    done, error = yield from _receive(layer, data)
    unfinished = not (done or error or layer.client_hello_parsed)
    if unfinished and len(layer.recv_buffer) > _GREETING_BYTES:
        layer.recv_buffer.clear()
        return False, "the greeting does not end"
    return done, error
