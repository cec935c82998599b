"""Callers of the forward proxy: whose tunnel it is, while what they said at its start counts."""

from pathlib import Path

from mitmproxy import connection

from proxy.clients.callers import Callers
from proxy.clients.keys import KeyRegistry
from proxy.config import GatewayConfig


def test_a_tunnel_ends_with_the_secret_that_opened_it(tmp_path: Path) -> None:
    registry = KeyRegistry.load(tmp_path / "keys.json")
    created = registry.create(tenant_id="acme", app_id="bot")
    callers = Callers(GatewayConfig.model_validate({"routes": []}), registry)
    first, second = (
        connection.Client(peername=("127.0.0.1", port), sockname=("127.0.0.1", 1))
        for port in (2, 3)
    )

    def says(secret: str) -> tuple[tuple[bytes, bytes], ...]:
        return ((b"Proxy-Authorization", f"Bearer {secret}".encode()),)

    assert callers.connects(first, says(created.secret))
    assert callers.of_forward(first, ()) == created.key.identity
    assert callers.of_forward(second, ()) is None
    rotated = registry.rotate(created.key.key_id, grace_seconds=0)
    assert callers.of_forward(first, ()) is None
    assert not callers.connects(second, says(created.secret))
    assert callers.connects(second, says(rotated.secret))
    assert callers.of_forward(second, ()) == created.key.identity
    callers.disconnects(second)
    assert callers.of_forward(second, ()) is None
