"""The demo's cast: fleets of agents, each with a client, a way in, and an owner."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from examples.practice.provider import KEY_VARIABLE
from examples.practice.stage import MODEL, Ports, Program, Stage

TENANT = "acme"
TENANT_WITHOUT_CONSENT = "umbra"
TRAINING_PURPOSES = ("debug", "eval", "train_sft", "train_preference", "train_rl")
_LOST_ANSWERS = 0.02


@dataclass(frozen=True, slots=True)
class Fleet:
    """A group of agents with one client, one way in and one owner."""

    name: str
    client: str
    """openai-chat | openai-responses | anthropic"""
    forward: bool
    """Through the intercepting proxy instead of a base URL."""
    tenant: str
    sessions: int
    """All attempts counted."""
    attempts: int = 1
    """Sessions on each task."""
    split: str = "train"
    start: int = 0
    """First task of the split."""
    route: str | None = None
    """Route of the gateway instead of the one that the client's own variable names."""
    nameless: bool = False
    """Orders without any personal data, sampled as the provider does by itself: what redaction
    leaves alone keeps the engine's exact tokens, and their logprobs are those of what was sampled."""


@dataclass(slots=True)
class Tally:
    """What the agents themselves counted."""

    sessions: int = 0
    successes: int = 0
    requests: int = 0
    rewards: int = 0
    problems: Counter[str] = field(default_factory=Counter)

    def add(self, report: Mapping[str, Any]) -> None:
        """Add the report of one fleet."""
        self.sessions += report["sessions"]
        self.successes += report["successes"]
        self.requests += report["requests_sent"]
        self.rewards += report["rewards"]
        self.problems.update(report["problems"])


class Cast:
    """Sends fleets to work; what they are told about Headrace is an address and a key."""

    def __init__(
        self,
        stage: Stage,
        ports: Ports,
        *,
        seed: int,
        provider: str,
        model: str | None,
        with_tools: bool = True,
    ) -> None:
        self._stage = stage
        self._ports = ports
        self._seed = seed
        self._provider = provider
        self._model = model or MODEL
        self._with_tools = with_tools
        self._keys: dict[str, str] = {}

    def create_keys(self) -> None:
        """Create a client key for each tenant; one tenant grants no purpose at all."""
        for tenant, purposes in ((TENANT, TRAINING_PURPOSES), (TENANT_WITHOUT_CONSENT, ())):
            granted = [word for purpose in purposes for word in ("--purpose", purpose)]
            created = self._stage.headrace_json(
                "keys", "create", "--tenant", tenant, "--app", "shop", *granted
            )
            self._keys[tenant] = created["key"]

    def work(self, fleets: Sequence[Fleet]) -> Tally:
        """Run fleets side by side to their end and add up what they counted."""
        running = [self._launch(fleet) for fleet in fleets]
        tally = Tally()
        for program in running:
            tally.add(json.loads(program.wait().output.splitlines()[-1]))
        return tally

    def _launch(self, fleet: Fleet) -> Program:
        model = MODEL if fleet.route else self._model
        arguments = ["-m", "examples.practice.fleet", "--client", fleet.client, "--model", model]
        arguments += ["--sessions", str(fleet.sessions), "--seed", str(self._seed)]
        arguments += ["--attempts", str(fleet.attempts)]
        arguments += ["--split", fleet.split, "--start", str(fleet.start), "--concurrency", "6"]
        arguments += ["--feedback-url", f"http://127.0.0.1:{self._ports.gateway}"]
        if self._with_tools:
            arguments += ["--tools-url", self._tools_url(fleet)]
        arguments += ["--lost-answers", str(_LOST_ANSWERS)]
        if fleet.nameless:
            arguments += ["--nameless", "--provider-defaults"]
        if not fleet.forward:
            arguments += ["--tools-key-env", "HEADRACE_KEY"]
        if fleet.route:
            gateway = f"http://127.0.0.1:{self._ports.gateway}"
            arguments += ["--base-url", f"{gateway}/{fleet.route}/v1"]
        elif self._provider != "practice" and not fleet.nameless:
            arguments += ["--provider-defaults"]
        return self._stage.launch(arguments, self._environment(fleet))

    def _tools_url(self, fleet: Fleet) -> str:
        if fleet.forward:
            return f"http://127.0.0.1:{self._ports.tools}/mcp"
        return f"http://127.0.0.1:{self._ports.gateway}/tools/mcp"

    def _environment(self, fleet: Fleet) -> dict[str, str]:
        key = self._keys[fleet.tenant]
        variables = {"HEADRACE_KEY": key, KEY_VARIABLE: ""}
        proxy = ["--proxy"] if fleet.forward else []
        variables |= self._stage.headrace_json("env", "--key", key, *proxy)
        variables.setdefault("OPENAI_API_KEY", key)
        if not fleet.forward:
            return variables
        return variables | self._provider_environment()

    def _provider_environment(self) -> dict[str, str]:
        """Return the provider's own address and key, as an agent behind a proxy has them."""
        if self._provider != "practice":
            return {}
        address = f"https://localhost:{self._ports.provider_tls}"
        secret = os.environ[KEY_VARIABLE]
        return {
            "OPENAI_BASE_URL": f"{address}/v1",
            "OPENAI_API_KEY": secret,
            "ANTHROPIC_BASE_URL": address,
            "ANTHROPIC_API_KEY": secret,
        }
