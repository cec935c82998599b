"""An installation at work on this machine: what the demo and ``benchmarks/gains.py`` share.

A house is a home folder with settings and client keys for two tenants. The practice base model is the first
version that serves. Provider, tools, gateway and governance run as processes.
"""

import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.practice.cast import Cast, Fleet, Tally
from examples.practice.model import STEPS
from examples.practice.provider import KEY_VARIABLE
from examples.practice.stage import MODEL, Ports, Stage, write_settings
from headrace.app.home import Home
from headrace.app.master_key import load_secrets
from headrace.app.setting_sources import load_settings
from headrace.services.lake_report import spool_lag
from train.registry.pointer import read_pointer
from trajectory.errors import WorkError

_FAULTS = 0.02
_TOOL_FAILURES = 0.02


class Installation:
    """An installation that agents can work through."""

    def __init__(
        self,
        stage: Stage,
        ports: Ports,
        *,
        seed: int,
        provider: str = "practice",
        model: str | None = None,
        desk: bool = False,
    ) -> None:
        """Describe an installation.

        Args:
            stage: where its processes run.
            ports: where they listen.
            seed: of tasks, people and faults.
            provider: practice | openai | anthropic: who answers the agents.
            model: what agents ask a real provider for.
            desk: agents have no tools and decide who gets the trade price; SmolLM2 is the base model.
        """
        os.environ.setdefault(KEY_VARIABLE, "practice-" + secrets.token_hex(16))
        self.stage = stage
        self.ports = ports
        self.sent = 0
        """Exchanges that agents sent so far."""
        self._seed = seed
        self._provider = provider
        self._desk = desk
        self._cast = Cast(
            stage, ports, seed=seed, provider=provider, model=model, with_tools=not desk
        )

    def open(
        self,
        models: Path,
        *,
        capture: Mapping[str, str] | None = None,
        inline: Sequence[str] = (),
        steps: int = STEPS,
    ) -> None:
        """Make the base model (kept in ``models``), and start everything.

        Args:
            models: folder of base models that were made before.
            capture: route → capture level, where it is not the default.
            inline: routes whose provider gets surrogates in the place of personal data.
            steps: how long the base model is trained.
        """
        make = ["-m", "examples.practice.model", "--quiet", "--steps", str(steps)]
        if self._desk:
            make = ["-m", "examples.practice.smollm2"]
        made = self.stage.run([*make, "--folder", str(models)])
        certificate = models / "tls"
        self.stage.run(["-m", "examples.practice.certificate", "--folder", str(certificate)])
        write_settings(
            self.stage.home,
            self.ports,
            provider=self._provider,
            provider_ca=certificate / "ca.pem",
            capture=capture or {},
            inline=inline,
        )
        self.stage.headrace("train", "adopt", made.output.strip())
        self._start(certificate)
        self._cast.create_keys()

    def _start(self, certificate: Path) -> None:
        stage, ports, seed = self.stage, self.ports, str(self._seed)
        provider = ["-m", "examples.practice.provider", "--port", str(ports.provider)]
        provider += ["--tls-port", str(ports.provider_tls), "--faults", str(_FAULTS)]
        provider += ["--seed", seed, "--tls-cert", str(certificate / "cert.pem")]
        provider += ["--tls-key", str(certificate / "key.pem")]
        stage.start(
            "provider", [*provider, "--model", str(stage.home / "models" / MODEL / "0001")], {}
        )
        if not self._desk:
            tools = ["-m", "examples.practice.tools", "--port", str(ports.tools), "--seed", seed]
            stage.start("tools", [*tools, "--failures", str(_TOOL_FAILURES)], {})
        stage.start("up", ["-m", "headrace", "--home", str(stage.home), "up"], {})
        stage.wait_until_ready("provider", f"http://127.0.0.1:{ports.provider}/v1/models")
        if not self._desk:
            stage.wait_until_ready("tools", f"http://127.0.0.1:{ports.tools}/mcp")
        stage.wait_until_ready("up", f"http://127.0.0.1:{ports.gateway}/headrace/v1/health")

    def work(self, fleets: Sequence[Fleet]) -> Tally:
        """Let fleets work side by side to their end."""
        tally = self._cast.work(fleets)
        self.sent += tally.requests
        return tally

    def wait_until_served(self, *, seconds: float = 180) -> None:
        """Wait until ``headrace serve`` answers with the version that the registry names.

        Raises:
            WorkError: it was not loaded in time.
        """
        home = Home(self.stage.home)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pointer = read_pointer(home.models / MODEL)
            served = (
                json.loads(home.serving.read_bytes())["models"] if home.serving.exists() else {}
            )
            live = served.get(MODEL, {}).get("live", {}).get("label")
            if pointer is not None and live == f"{MODEL}@{pointer.version}":
                return
            time.sleep(0.5)
        raise WorkError(
            "the promoted model is not served; see the log serve.log in the home folder."
        )

    def drain(self, *, seconds: float = 180) -> None:
        """Wait until the spool is empty and the ledger has every exchange, or no more come.

        Raises:
            WorkError: governance did not come to an end in time.
        """
        deadline = time.monotonic() + seconds
        before = -1
        while time.monotonic() < deadline:
            waiting = self._waiting()
            stored = self.sql("select count(*) as n from exchanges")[0]["n"]
            if waiting == 0 and stored in (before, self.sent):
                return
            before = stored if waiting == 0 else -1
            time.sleep(1)
        raise WorkError("governance did not finish; see the log govern.log in the home folder.")

    def _waiting(self) -> int:
        settings = load_settings(home=self.stage.home)
        home = Home(settings.home)
        return spool_lag(settings, home, load_secrets(home.secrets)).records

    def sql(self, query: str) -> list[dict[str, Any]]:
        """Ask the lake."""
        rows: list[dict[str, Any]] = self.stage.headrace_json("sql", query)
        return rows
