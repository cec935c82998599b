"""The demo's stage: real processes on this machine (gateway, governor, provider, tools, agents)."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from examples.practice.provider import KEY_VARIABLE
from governance.policy.bundle import SHIPPED
from trajectory.child_process import free_port
from trajectory.errors import WorkError

ROOT = Path(__file__).resolve().parents[2]
MODEL = "practice"
"""Name of the practice model in the registry."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where everything listens on the loopback interface."""

    gateway: int = field(default_factory=free_port)
    forward: int = field(default_factory=free_port)
    admin: int = field(default_factory=free_port)
    provider: int = field(default_factory=free_port)
    provider_tls: int = field(default_factory=free_port)
    tools: int = field(default_factory=free_port)


class Stage:
    """Starts and stops the demo's processes; their logs lie in the home folder and are scanned too."""

    def __init__(self, home: Path, ports: Ports) -> None:
        self.home = home
        self.ports = ports
        self._stack = ExitStack()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._launched: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End every process, last started first, each with time to drain."""
        running: list[subprocess.Popen[str] | subprocess.Popen[bytes]]
        running = [*self._launched, *reversed(self._processes.values())]
        for process in running:
            if process.poll() is not None:
                continue
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._launched.clear()
        self._processes.clear()
        self._stack.close()

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start one process in the background."""
        log = self._stack.enter_context((self.home / "logs" / f"{name}.log").open("ab"))
        self._processes[name] = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )

    def wait_until_ready(self, name: str, url: str, *, seconds: float = 90) -> None:
        """Wait until ``url`` answers.

        Raises:
            WorkError: the process ended or did not answer in time; the text names its log.
        """
        deadline = time.monotonic() + seconds
        log = self.home / "logs" / f"{name}.log"
        while time.monotonic() < deadline:
            if self._processes[name].poll() is not None:
                raise WorkError(f"{name} ended before it was ready; see {log}.")
            try:
                with httpx.Client(trust_env=False, verify=False, timeout=2) as client:  # noqa: S501 - loopback readiness
                    if client.get(url).status_code < 500:
                        return
            except httpx.TransportError:
                time.sleep(0.1)
        raise WorkError(f"{name} did not answer within {seconds:g} s; see {log}.")

    def wait_until_served(self, artifact: str, key: str, *, seconds: float = 30) -> None:
        """Wait until the gateway gives an artefact to agents; it looks about every second.

        Raises:
            WorkError: it did not in time.
        """
        deadline = time.monotonic() + seconds
        address = f"http://127.0.0.1:{self.ports.gateway}/headrace/v1/artifacts/{artifact}"
        with httpx.Client(trust_env=False, headers={"authorization": f"Bearer {key}"}) as client:
            while client.get(address).status_code != 200:
                if time.monotonic() > deadline:
                    raise WorkError(f"the gateway does not serve {artifact}; see gateway.log.")
                time.sleep(0.2)

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> "ProgramResult":
        """Run ``python …`` to its end and return what it printed."""
        return self.launch(arguments, environment).wait()

    def launch(
        self, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> "Program":
        """Start ``python …`` and return a handle to wait on."""
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._launched.append(process)
        return Program(process, tuple(arguments))

    def headrace(self, *arguments: str) -> "ProgramResult":
        """Run a ``headrace`` command on the demo's home, as a person would."""
        return self.run(["-m", "headrace", "--home", str(self.home), *arguments])

    def headrace_json(self, *arguments: str) -> Any:
        """Run a ``headrace`` command with ``--json`` and return its value."""
        return json.loads(self.headrace(*arguments, "--json").output)


@dataclass(frozen=True, slots=True)
class Program:
    """A program that was launched."""

    process: subprocess.Popen[str]
    arguments: tuple[str, ...]

    def wait(self, *, allowed: tuple[int, ...] = (0,)) -> "ProgramResult":
        """Wait for the end.

        Raises:
            WorkError: the exit code is not an allowed one; the text ends with the program's own words.
        """
        output, errors = self.process.communicate()
        finished = ProgramResult(self.process.returncode, output, errors)
        if finished.code not in allowed:
            shown = " ".join(argument for argument in self.arguments[:8])
            raise WorkError(
                f"`{shown} …` ended with {finished.code}:\n{errors[-2000:] or output[-2000:]}"
            )
        return finished


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """A program that has ended."""

    code: int
    output: str
    errors: str


def write_settings(
    home: Path,
    ports: Ports,
    *,
    provider: str,
    provider_ca: Path,
    capture: Mapping[str, str],
    inline: Sequence[str],
) -> None:
    """Write ``headrace.yaml`` of the demo: routes, interception, and who is trusted upstream.

    ``capture`` says of some routes how much of an exchange is kept (``tokens``). ``inline`` names routes whose
    provider gets surrogates: their policy is the default one with this said in a copy.
    """
    local = f"http://127.0.0.1:{ports.provider}"
    routes: list[dict[str, Any]] = []
    for name, address, variable, header in _PROVIDERS:
        if provider == "practice":
            address, variable = local, KEY_VARIABLE
        elif provider == name:
            address = os.environ.get(f"{name.upper()}_BASE_URL", address).removesuffix("/v1")
        else:
            continue
        routes.append(
            {"name": name, "upstream": address, "credential": {"env": variable, "header": header}}
        )
    routes.append({"name": "practice", "model": MODEL})
    routes.append({"name": "tools", "upstream": f"http://127.0.0.1:{ports.tools}", "kind": "tool"})
    for route in routes:
        if route["name"] in capture:
            route["capture"] = capture[route["name"]]
    gateway: dict[str, Any] = {
        "port": ports.gateway,
        "forward_port": ports.forward,
        "admin_port": ports.admin,
        "routes": routes,
    }
    if provider == "practice":
        gateway["upstream_ca"] = str(provider_ca)
        gateway["intercept_hosts"] = ["localhost"]
    settings: dict[str, Any] = {
        "gateway": gateway,
        "train": {"model": MODEL},
        "console": {"enabled": False},
    }
    if inline:
        settings["policy"] = {"bundle": str(_policy(home / "policy", inline))}
    (home / "headrace.yaml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")


def _policy(folder: Path, inline: Sequence[str]) -> Path:
    """Write a copy of the default policy that replaces personal data on some routes before it is sent."""
    shutil.copytree(SHIPPED / "default", folder)
    path = folder / "redaction.yaml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["spec"]["inline"] = {"routes": list(inline), "budget_ms": _PATIENT_MS}
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return folder


_PATIENT_MS = 60_000
"""A demo runs on machines that do much else; a request that waits is better than one that is refused."""

_PROVIDERS = (
    ("openai", "https://api.openai.com", "OPENAI_API_KEY", "authorization"),
    ("anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "x-api-key"),
)
