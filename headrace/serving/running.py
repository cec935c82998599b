"""Runs the server of registered models until it is told to stop."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.serving.hosts import Host, OwnProcess, OwnServers, VllmServers, has_vllm
from headrace.serving.keeper import Keeper
from headrace.serving_key import serving_key
from train.quiet import quiet_libraries
from trajectory.errors import ConfigurationError, HeadraceError

if TYPE_CHECKING:
    from headrace.home import Home
    from headrace.settings import ServeSettings

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.5


def serve_models(
    settings: "ServeSettings",
    home: "Home",
    *,
    names: Sequence[str],
    announce: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigurationError: the port is taken, or the engine that was asked for is not installed.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with quiet_libraries(home.state / "serving"), _host(settings, home) as host:
        keeper = Keeper(
            home.models, names, host, home.serving, drain_seconds=settings.drain_seconds
        )
        keeper.start()
        announce(f"serving {', '.join(names) or 'every model that has a live version'}")
        try:
            while not stop.wait(_LOOK_SECONDS):
                _look(keeper)
        finally:
            keeper.close()


def _look(keeper: Keeper) -> None:
    """Look once; a registry that cannot be read now may be readable the next time."""
    try:
        keeper.look()
    except (OSError, ValueError, HeadraceError) as error:
        _log.error("what serves stays as it is: %s", type(error).__name__)


@contextmanager
def _host(settings: "ServeSettings", home: "Home") -> "Iterator[Host]":
    key = serving_key(home).read_text(encoding="ascii").strip()
    if settings.url:
        yield OwnServers(settings.url.rstrip("/"), key)
    elif settings.engine == "vllm" or (settings.engine == "auto" and has_vllm()):
        if not has_vllm():
            raise ConfigurationError(
                "serve.engine is vllm, and vLLM is not installed: `uv pip install vllm`, or set "
                "serve.engine to transformers"
            )
        servers = VllmServers(settings.vllm_arguments, home.logs, key)
        try:
            yield servers
        finally:
            servers.close()
    else:
        place = settings.host, settings.port
        with OwnProcess.open(*place, key, address=settings.address) as host:
            yield host
