"""A gateway in a process of its own, as production runs it, with a key, a spool and a reader."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from proxy.config import GatewayConfig
from proxy.identity import KeyRegistry
from proxy.spool import Cursor, SpoolReader
from trajectory.exchange import Exchange, Feedback

SPOOL_KEY = b"s" * 32
FINGERPRINT_KEY = b"f" * 32

_MAIN = """
import json, logging, sys
from pathlib import Path
from proxy.config import GatewayConfig
from proxy.gateway import serve
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
config = GatewayConfig.model_validate_json(Path(sys.argv[1]).read_text())
def ready(addresses):
    print(
        json.dumps([addresses.base_url, addresses.forward, addresses.admin, addresses.transparent]),
        flush=True,
    )
serve(config, spool_key=b"s" * 32, fingerprint_key=b"f" * 32, ready=ready)
"""


started: "set[Running]" = set()
"""Gateways that run now."""


@dataclass(eq=False)
class Running:
    """Starts and stops a gateway; ``settings`` go over the defaults."""

    home: Path
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

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
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, str(path)],
                stdout=subprocess.PIPE,
                stderr=log,
                env={
                    **os.environ,
                    "PYTHONPATH": str(Path.cwd()),
                    "RUNNING_KEY": self.key,
                    **self.environment,
                },
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.log.read_text())
        base_url, forward, admin, transparent = json.loads(line)
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
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def records(self, count: int = 1, *, seconds: float = 30.0) -> list[Exchange | Feedback]:
        """Take records until there are ``count``, or time is up and there are no more."""
        found: list[Exchange | Feedback] = []
        until = time.monotonic() + seconds
        more = True
        while len(found) < count and (more or time.monotonic() < until):
            batch = self._reader.take(self._cursor)
            more = batch.cursor != self._cursor
            assert not batch.damaged
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
