"""Connections of nobody: ended soon, whatever they send or leave out; those of clients stay."""

import asyncio
import warnings
from contextlib import suppress
from pathlib import Path

import pytest

from proxy.clients.keys import KeyRegistry
from proxy.config import GatewayConfig

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of mitmproxy's own imports
    from proxy.mitm import connections as strangers
    from proxy.plain import connection
    from proxy.worker import Gateway

from tests.support.upstream import Upstream, plain

HEAD = b"GET /up/x HTTP/1.1\r\nHost: x\r\n"
SAID = {
    "nothing": b"",
    "half a head": HEAD,
    "a wrong key": HEAD + b"x-headrace-key: hr_000000000000_x\r\n\r\n",
    "a body without an end": HEAD.replace(b"GET", b"POST") + b"Content-Length: 9\r\n\r\n123",
}


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> bytes:
    """Make a call and return its answer's body."""
    writer.write(HEAD + f"x-headrace-key: {key}\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    return await reader.readexactly(2)


@pytest.mark.parametrize("kind", ["fast", "stock", "plain"])
def test_only_who_was_let_in_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(strangers, "SECONDS", 3.0)
    monkeypatch.setattr(connection, "STRANGER_SECONDS", 3.0)
    key = KeyRegistry.load(tmp_path / "keys.json").create(tenant_id="acme", app_id="x").secret

    async def main(upstream: str) -> None:
        config = GatewayConfig.model_validate(
            {
                "port": 0,
                "forward_port": None,
                "admin_port": None,
                "keys": str(tmp_path / "keys.json"),
                "limits": str(tmp_path / "limits.sqlite"),
                "routes": [{"name": "up", "upstream": upstream}],
                "capture": False,
                "fastpath": kind == "fast",
                "listener": "plain" if kind == "plain" else "mitmproxy",
            }
        )
        gateway = Gateway(config, spool_key=b"s" * 32, fingerprint_key=b"f" * 32)
        try:
            addresses = await gateway.start()
            assert addresses.base_url is not None
            known = await asyncio.open_connection(*addresses.base_url)
            assert await ask(*known, key) == b"ok"
            others = {}
            for name, said in SAID.items():
                reader, writer = others[name] = await asyncio.open_connection(*addresses.base_url)
                writer.write(said)
            for reader, writer in others.values():
                with suppress(ConnectionError):
                    await asyncio.wait_for(reader.read(), 60)
                writer.close()
            assert await ask(*known, key) == b"ok"
            known[1].close()
        finally:
            await gateway.close()

    with Upstream(lambda _: plain(200, b"ok")) as upstream:
        asyncio.run(main(upstream.url))
