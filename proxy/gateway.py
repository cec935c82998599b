"""The gateway from start to drained end: in this process, or in several that share its ports."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable

from proxy import fastpath
from proxy.authority import ensure_authority
from proxy.config import GatewayConfig
from proxy.embedding import Addresses
from proxy.garbage import short_pauses
from proxy.worker import Gateway
from proxy.workers import Workers

_log = logging.getLogger(__name__)


def serve(
    config: GatewayConfig,
    *,
    spool_key: bytes,
    fingerprint_key: bytes,
    ready: Callable[[Addresses], None] | None = None,
) -> None:
    """Run the gateway until SIGTERM or SIGINT, then finish the calls in flight and return.

    Args:
        config: the settings; with several ``workers`` this process only watches over them.
        spool_key: 32 bytes that seal the spool.
        fingerprint_key: up to 64 bytes for the fingerprints of credentials.
        ready: called once when all ports are open.

    Raises:
        ConfigurationError: a port is taken, a credential is missing, the authority is unusable.
    """
    if config.workers > 1:
        if config.forward_port is not None or config.transparent_port is not None:
            ensure_authority(config.authority)
        workers = Workers(config, spool_key=spool_key, fingerprint_key=fingerprint_key)
        workers.run(ready)
    else:
        serve_one(config, spool_key=spool_key, fingerprint_key=fingerprint_key, ready=ready)


def serve_one(
    config: GatewayConfig,
    *,
    spool_key: bytes,
    fingerprint_key: bytes,
    ready: Callable[[Addresses], None] | None = None,
) -> None:
    """Run one worker in this process; see :func:`serve`."""
    with asyncio.Runner(loop_factory=fastpath.new_event_loop(config.fastpath)) as runner:
        runner.run(_serve(config, spool_key, fingerprint_key, ready))


async def _serve(
    config: GatewayConfig,
    spool_key: bytes,
    fingerprint_key: bytes,
    ready: Callable[[Addresses], None] | None,
) -> None:
    gateway = Gateway(config, spool_key=spool_key, fingerprint_key=fingerprint_key)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(ValueError, RuntimeError):  # not the main thread
            loop.add_signal_handler(number, stop.set)
    try:
        addresses = await gateway.start()
        with short_pauses(enabled=config.fastpath):
            if ready is not None:
                ready(addresses)
            await stop.wait()
            await gateway.drain()
    finally:
        await gateway.close()
