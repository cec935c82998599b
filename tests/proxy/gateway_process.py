"""A gateway in a process of its own, as production runs it, with a key, a spool and a reader."""

import logging
import multiprocessing
import os
import signal
import sys
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from proxy.clients.keys import KeyRegistry
from proxy.config import GatewayConfig
from proxy.routes.router import Router
from proxy.spool import Cursor, SpoolReader
from trajectory.exchange import Exchange, Feedback

if TYPE_CHECKING:
    from proxy.gateway import GuardFactory, InlineFactory

SPOOL_KEY = b"s" * 32
FINGERPRINT_KEY = b"f" * 32

_FORKS = multiprocessing.get_context("forkserver")
"""Each gateway is forked from a process that has imported everything: that takes most of a start."""
_preloaded = ["tests.proxy.gateway_process", "tests.proxy.loaded_gateway"]
_FORKS.set_forkserver_preload(_preloaded)


def preload(module: str) -> None:
    """Let the process that gateways are forked from import a module too; call it before the first starts."""
    if module not in _preloaded:
        _preloaded.append(module)
        _FORKS.set_forkserver_preload(_preloaded)


def _serve(
    path: Path,
    log: Path,
    environment: dict[str, str],
    inline: "InlineFactory | None",
    guard: "GuardFactory | None",
    sender: Connection,
) -> None:
    """Run a gateway in a process that was forked for it."""
    from proxy.gateway import serve

    os.environ.clear()
    os.environ.update(environment)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    config = GatewayConfig.model_validate_json(path.read_text())
    serve(
        config,
        spool_key=SPOOL_KEY,
        fingerprint_key=FINGERPRINT_KEY,
        inline=inline,
        guard=guard,
        ready=lambda found: sender.send(
            (found.base_url, found.forward, found.admin, found.transparent)
        ),
    )


LISTENER = ContextVar("listener", default="plain")
"""What serves the base-URL port of gateways that do not say it; tests/proxy sets either in turn."""
started: "set[GatewayProcess]" = set()
"""Gateways that run now."""


@dataclass(eq=False)
class GatewayProcess:
    """Starts and stops a gateway; ``settings`` go over the defaults."""

    home: Path
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    inline: "InlineFactory | None" = None
    """Makes what puts surrogates into requests."""
    guard: "GuardFactory | None" = None
    """Makes what judges tool calls."""

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        base = {
            "port": 0,
            "forward_port": 0,
            "admin_port": 0,
            "authority": str(self.home / "ca"),
            "keys": str(self.home / "keys.json"),
            "limits": str(self.home / "limits.sqlite"),
            "connect_seconds": 2,
            "drain_seconds": 5,
            "listener": LISTENER.get(),
        }
        spool = {"directory": str(self.home / "spool"), **self.settings.get("spool", {})}
        config = GatewayConfig.model_validate({**base, **self.settings, "spool": spool})
        self.registry = KeyRegistry.load(config.keys)
        created = self.registry.create(
            tenant_id="acme", app_id="tests", environment="ci", purposes=("train_sft",)
        )
        self.key, self.key_id = created.secret, created.key.key_id
        path = self.home / "gateway.json"
        path.write_text(config.model_dump_json())
        self.log = self.home / "gateway.log"
        environment = {**os.environ, "RUNNING_KEY": self.key, **self.environment}
        receiver, sender = _FORKS.Pipe(duplex=False)
        self.process = _FORKS.Process(
            target=_serve,
            args=(path, self.log, environment, self.inline, self.guard, sender),
            daemon=config.workers == 1,
        )
        self.process.start()
        sender.close()
        with receiver:
            try:
                base_url, forward, admin, transparent = receiver.recv()
            except EOFError:
                self.process.join(60)
                raise AssertionError(self.log.read_text()) from None
        self.url = f"http://127.0.0.1:{base_url[1]}" if base_url else ""
        self.forward = f"http://headrace:{self.key}@127.0.0.1:{forward[1]}" if forward else ""
        self.forward_port = forward[1] if forward else 0
        self.admin = f"http://127.0.0.1:{admin[1]}" if admin else ""
        self.transparent_port = transparent[1] if transparent else 0
        self.bundle = str(self.home / "ca" / "bundle.pem")
        self._reader = SpoolReader(self.home / "spool", SPOOL_KEY)
        self._cursor = Cursor()
        started.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        started.discard(self)
        self.stop()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.runs:
            self.tell(number)
        return self.wait()

    @property
    def runs(self) -> bool:
        """Whether the process is there."""
        return self.process.is_alive()

    @property
    def pid(self) -> int:
        """The process's number."""
        assert self.process.pid is not None
        return self.process.pid

    def tell(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait for the process's end; return its exit code."""
        self.process.join(60)
        assert self.process.exitcode is not None
        return self.process.exitcode

    def session_at_the_first(self) -> str:
        """Return a session that every route sends to its first upstream while that can be reached."""
        bare = [
            {"name": route["name"], "upstream": route["upstream"]}
            for route in self.settings["routes"]
            if isinstance(route["upstream"], list)
        ]
        for route in bare:
            route["upstream"] = [
                {"url": choice["url"], "weight": choice.get("weight", 1)}
                for choice in route["upstream"]
            ]
        plans = Router(GatewayConfig.model_validate({"routes": bare})).plans
        return next(
            session
            for session in map(str, range(10_000))
            if all(plan.target(session.encode()) is plan.targets[0] for plan in plans)
        )

    def records(self, count: int = 1, *, seconds: float = 30.0) -> list[Exchange | Feedback]:
        """Take records until there are ``count``, or time is up and there are no more."""
        found: list[Exchange | Feedback] = []
        until = time.monotonic() + seconds
        more = True
        while len(found) < count and (more or time.monotonic() < until):
            batch = self._reader.take(self._cursor)
            more = batch.cursor != self._cursor
            assert not batch.damaged, batch.damaged
            self._cursor = batch.cursor
            found += batch.records
            if len(found) < count:
                time.sleep(0.02)
        return found

    def exchanges(self, count: int = 1) -> list[Exchange]:
        found = [r for r in self.records(count) if isinstance(r, Exchange)]
        assert len(found) == count, [r.outcome for r in found]
        return found

    def exchange(self) -> Exchange:
        return self.exchanges(1)[0]
