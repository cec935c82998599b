"""The gateway from start to drained end: in this process, or in several that share its ports.

With Python's own settings a collection goes through everything that was made since the process started. The event
loop then stands still for some fifty milliseconds, and so does every stream. What was there at the start is left
out here, and what comes later is looked through in small portions.
"""

import asyncio
import contextlib
import gc
import logging
import multiprocessing
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Any

from proxy.config import GatewayConfig
from proxy.guard.route import GuardTerms
from proxy.inline.route import InlineTerms
from proxy.mitm import fastpath
from proxy.mitm.authority import ensure_authority
from proxy.mitm.master import Addresses
from proxy.worker import Gateway
from trajectory.errors import ConfigurationError, WorkError

THRESHOLDS = (2000, 5, 20)
"""New objects before the young are looked through, and how often before the older ones are.

Looking through 500 each time took 3 µs of a call, 2,000 take a tenth of one; the pause stays below 0.2 ms.
"""


@contextmanager
def short_pauses(*, enabled: bool) -> Iterator[None]:
    """Collect in short pauses; what exists now is not looked through again before the end."""
    if not enabled:
        yield
        return
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


_log = logging.getLogger(__name__)
_START_SECONDS = 180.0
"""A worker that loads detectors took more than a minute where ten other processes had the processors."""
_LOOK_SECONDS = 0.5
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
"""Before a worker is started again, and while it goes on ending."""
_STEADY_SECONDS = 60.0
"""A worker that has lived so long ends for the first time."""


type InlineFactory = Callable[[], InlineTerms | None]
"""Makes what puts surrogates into requests, in each process for itself; None where policy asks for none."""
type GuardFactory = Callable[[], GuardTerms | None]
"""Makes what judges tool calls, in the same way."""


def _work(
    settings: str,
    index: int,
    keys: tuple[bytes, bytes],
    inline: InlineFactory | None,
    guard: GuardFactory | None,
    pipe: Connection,
) -> None:
    """Run one worker; what it announces goes through the pipe."""

    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    config = GatewayConfig.model_validate_json(settings)
    first = config.admin_port
    if first:
        config = config.model_copy(update={"admin_port": first + index})
    try:
        serve_one(
            config,
            admin_ports=range(first, first + config.workers) if first else (),
            spool_key=keys[0],
            fingerprint_key=keys[1],
            inline=inline,
            guard=guard,
            ready=lambda found: pipe.send(found),
        )
    except ConfigurationError as error:
        pipe.send(str(error))
        raise SystemExit(error.exit_code) from None


def _end_with_parent() -> None:
    """Finish the calls in flight and end once nobody watches over this process any more."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


class _Worker:
    """One process, and the next one in its place."""

    def __init__(self, index: int, start: Callable[[int], tuple[SpawnProcess, Connection]]) -> None:
        self.index = index
        self._start = start
        self._pause = _FIRST_PAUSE
        self._again_at: float | None = None
        """When it is started again; None while its process lives."""
        self.start()

    def start(self) -> None:
        """Start a process; it tells through the pipe when it is up."""
        self.process, self._pipe = self._start(self.index)
        self._began, self._again_at, self.up = time.monotonic(), None, False

    def wakes(self) -> list[int | Connection]:
        """Return what something happens on next."""
        if self._again_at is not None:
            return []
        told = self.up or self._pipe.closed
        return [self.process.sentinel] if told else [self.process.sentinel, self._pipe]

    def hear(self) -> Any:
        """Return what it tells: where it listens, or why it cannot; None while there is no word.

        Raises:
            WorkError: it ended, or took too long, before it said anything.
        """
        try:
            if not self._pipe.poll():
                if time.monotonic() - self._began > _START_SECONDS:
                    self.process.kill()
                    raise WorkError(f"gateway worker {self.index} did not start; see its log")
                return None
            found = self._pipe.recv()
        except EOFError:
            self._pipe.close()
            raise WorkError(
                f"gateway worker {self.index} ended while starting; see its log"
            ) from None
        self._pipe.close()
        self.up = not isinstance(found, str)
        return found

    def mend(self) -> None:
        """Start it again once it has ended: soon, and ever later while it goes on ending."""
        now = time.monotonic()
        if self._again_at is None:
            self._listen()
            if self.process.is_alive():
                return
            if self.up and now - self._began > _STEADY_SECONDS:
                self._pause = _FIRST_PAUSE
            self._later(f"ended ({self.process.exitcode})")
        elif now >= self._again_at:
            try:
                self.start()
            except OSError as error:  # no file, no process or no memory is left for it now
                self._later(f"cannot be started: {error.strerror}")

    def _later(self, why: str) -> None:
        """Say what happened, and start it again after a pause."""
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        _log.error("gateway worker %d %s; starting it again in %g seconds", self.index, why, pause)
        self._again_at = time.monotonic() + pause

    def _listen(self) -> None:
        """Take note of what a worker tells that was started again; the others go on all the same."""
        if self.up or self._pipe.closed:
            return
        try:
            found = self.hear()
        except WorkError as error:
            found = str(error)
        if isinstance(found, str):
            _log.error("gateway worker %d cannot start: %s", self.index, found)
        elif found is not None:
            _log.info("gateway worker %d is up again", self.index)


class WorkerProcesses:
    """Keeps ``config.workers`` gateway processes running until told to stop."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        spool_key: bytes,
        fingerprint_key: bytes,
        inline: InlineFactory | None = None,
        guard: GuardFactory | None = None,
    ) -> None:
        for name in ("port", "forward_port", "transparent_port"):
            if getattr(config, name) == 0:
                raise ConfigurationError(f"several workers share a port: {name} 0 cannot be shared")
        self._config = config
        self._keys = (spool_key, fingerprint_key)
        self._inline = inline
        self._guard = guard
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_Worker] = []
        self._stopping = False

    def run(self, ready: Callable[[Any], None] | None) -> None:
        """Start all workers, start those again that die, and end when told by a signal.

        Raises:
            ConfigurationError: a worker could not start at all.
            WorkError: a worker did not come up in time.
        """
        handlers = {number: signal.signal(number, self._stop) for number in _ending_signals()}
        try:
            found = self._first()
            if ready is not None and not self._stopping:
                ready(found)
            while not self._stopping:
                wait([each for worker in self._workers for each in worker.wakes()], _LOOK_SECONDS)
                for worker in self._workers:
                    worker.mend()
        finally:
            self._end()
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _first(self) -> Any:
        """Start all, one after the other; return where the first one listens."""
        found = []
        for index in range(self._config.workers):
            worker = _Worker(index, self._start)
            self._workers.append(worker)
            while not (worker.up or self._stopping):
                wait(worker.wakes(), _LOOK_SECONDS)
                told = worker.hear()
                if isinstance(told, str):
                    raise ConfigurationError(told)
                found.append(told)
        return next((each for each in found if each is not None), None)

    def _start(self, index: int) -> tuple[SpawnProcess, Connection]:
        receiving, sending = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_work,
            args=(
                self._config.model_dump_json(),
                index,
                self._keys,
                self._inline,
                self._guard,
                sending,
            ),
            name=f"headrace-gateway-{index}",
        )
        with sending:
            try:
                process.start()
            except BaseException:
                receiving.close()
                raise
        return process, receiving

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True

    def _end(self) -> None:
        processes = [worker.process for worker in self._workers]
        for process in processes:
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + self._config.drain_seconds + 15
        for process in processes:
            process.join(max(0.1, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def serve(
    config: GatewayConfig,
    *,
    spool_key: bytes,
    fingerprint_key: bytes,
    inline: InlineFactory | None = None,
    guard: GuardFactory | None = None,
    ready: Callable[[Addresses], None] | None = None,
) -> None:
    """Run the gateway until SIGTERM, SIGINT or SIGHUP, then finish the calls in flight and return.

    Args:
        config: the settings; with several ``workers`` this process only watches over them.
        spool_key: 32 bytes that seal the spool.
        fingerprint_key: up to 64 bytes for the fingerprints of credentials.
        inline: makes what puts surrogates into requests; called in each worker.
        guard: makes what judges tool calls; called in each worker.
        ready: called once when all ports are open.

    Raises:
        ConfigurationError: a port is taken, a credential is missing, the authority is unusable.
    """
    _raise_most_files()
    if config.workers > 1:
        if config.forward_port is not None or config.transparent_port is not None:
            ensure_authority(config.authority)
        workers = WorkerProcesses(
            config,
            spool_key=spool_key,
            fingerprint_key=fingerprint_key,
            inline=inline,
            guard=guard,
        )
        workers.run(ready)
    else:
        serve_one(
            config,
            spool_key=spool_key,
            fingerprint_key=fingerprint_key,
            inline=inline,
            guard=guard,
            ready=ready,
        )


def _ending_signals() -> list[signal.Signals]:
    """Return the signals that end a gateway; under nohup its terminal may close."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *(() if ignored else (signal.SIGHUP,))]


def _raise_most_files() -> None:
    """Open as many files as this process may: each call takes two, and 1,024 is the common default."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def serve_one(
    config: GatewayConfig,
    *,
    spool_key: bytes,
    fingerprint_key: bytes,
    inline: InlineFactory | None = None,
    guard: GuardFactory | None = None,
    ready: Callable[[Addresses], None] | None = None,
    admin_ports: Collection[int] = (),
) -> None:
    """Run one worker in this process, with others that have these admin ports; see :func:`serve`."""
    with asyncio.Runner(loop_factory=fastpath.new_event_loop(config.fastpath)) as runner:
        terms = None if inline is None else inline()
        rules = None if guard is None else guard()
        keys = spool_key, fingerprint_key
        runner.run(_serve(config, keys, terms, rules, ready, admin_ports))


async def _serve(
    config: GatewayConfig,
    keys: tuple[bytes, bytes],
    inline: InlineTerms | None,
    guard: GuardTerms | None,
    ready: Callable[[Addresses], None] | None,
    admin_ports: Collection[int],
) -> None:
    gateway = Gateway(
        config,
        spool_key=keys[0],
        fingerprint_key=keys[1],
        inline=inline,
        guard=guard,
        admin_ports=admin_ports,
    )
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in _ending_signals():
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
