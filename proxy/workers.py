"""Several gateway processes on the same ports: the kernel deals connections out to them."""

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Any

from proxy.config import GatewayConfig
from trajectory.errors import ConfigurationError, WorkError

_log = logging.getLogger(__name__)
_START_SECONDS = 60.0
_RESTART_PAUSE = 1.0


def _work(settings: str, index: int, keys: tuple[bytes, bytes], pipe: Connection) -> None:
    """Run one worker; what it announces goes through the pipe."""
    from proxy.gateway import serve_one

    config = GatewayConfig.model_validate_json(settings)
    if config.admin_port:
        config = config.model_copy(update={"admin_port": config.admin_port + index})
    try:
        serve_one(
            config, spool_key=keys[0], fingerprint_key=keys[1], ready=lambda found: pipe.send(found)
        )
    except ConfigurationError as error:
        pipe.send(str(error))
        raise SystemExit(error.exit_code) from None


class Workers:
    """Keeps ``config.workers`` gateway processes running until told to stop."""

    def __init__(self, config: GatewayConfig, *, spool_key: bytes, fingerprint_key: bytes) -> None:
        if not config.port and config.port is not None:
            raise ConfigurationError("several workers share a port: port 0 cannot be shared")
        if not config.forward_port and config.forward_port is not None:
            raise ConfigurationError(
                "several workers share a port: forward_port 0 cannot be shared"
            )
        if config.transparent_port == 0:
            raise ConfigurationError(
                "several workers share a port: transparent_port 0 cannot be shared"
            )
        self._config = config
        self._keys = (spool_key, fingerprint_key)
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[int, SpawnProcess] = {}
        self._stopping = False

    def run(self, ready: Callable[[Any], None] | None) -> None:
        """Start all workers, start those again that die, and end when told by a signal.

        Raises:
            ConfigurationError: a worker could not start.
            WorkError: a worker did not come up in time.
        """
        handlers = {
            number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            found = [self._start(index) for index in range(self._config.workers)]
            if ready is not None:
                ready(found[0])
            while not self._stopping:
                wait([process.sentinel for process in self._processes.values()], 0.5)
                self._mend()
        finally:
            self._end()
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _start(self, index: int) -> Any:
        receiving, sending = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_work,
            args=(self._config.model_dump_json(), index, self._keys, sending),
            name=f"headrace-gateway-{index}",
        )
        process.start()
        self._processes[index] = process
        sending.close()
        try:
            if not receiving.poll(_START_SECONDS):
                raise WorkError(f"gateway worker {index} did not start; see its log")
            found = receiving.recv()
        except EOFError:
            raise WorkError(f"gateway worker {index} ended while starting; see its log") from None
        finally:
            receiving.close()
        if isinstance(found, str):
            raise ConfigurationError(found)
        return found

    def _mend(self) -> None:
        for index, process in list(self._processes.items()):
            if process.is_alive() or self._stopping:
                continue
            _log.error("gateway worker %d ended (%s); starting it again", index, process.exitcode)
            time.sleep(_RESTART_PAUSE)
            self._start(index)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True

    def _end(self) -> None:
        for process in self._processes.values():
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + self._config.drain_seconds + 15
        for process in self._processes.values():
            process.join(max(0.1, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
