"""``headrace tap``: a stdio MCP server as a child whose messages are captured on the way."""

import os
import re
import secrets
import signal
from collections.abc import Sequence
from pathlib import PurePath
from typing import Annotated

import typer

from headrace.app.clients import local_client_key
from headrace.app.context import AppContext
from headrace.app.installation import gateway_config
from headrace.app.output import note
from proxy.clients.keys import KeyRegistry
from proxy.clients.shared_counters import SharedCounters
from proxy.config import GatewayConfig
from proxy.guard.route import CallDecision, CallGuard, GuardTerms
from proxy.recording.capture import write_signals
from proxy.recording.recorder import Recorder
from proxy.recording.spool_factory import open_spool
from proxy.spool import SpoolUnavailableError, SpoolWriter
from proxy.tap import LineGuard, MessageRecorder, run_tapped
from proxy.tap.messages import Server
from proxy.telemetry.counters import Counters
from trajectory.child_process import environment_of_others
from trajectory.errors import ConfigurationError, HeadraceError
from trajectory.exchange import ExchangeOutcome


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="tap", context_settings={"allow_interspersed_args": False})(tap)


def tap(
    context: typer.Context,
    command: Annotated[list[str], typer.Argument(help="The MCP server's own command, after --.")],
    key_env: Annotated[
        str | None,
        typer.Option(
            help="Environment variable with the client key whose data this is; by default this"
            " machine's own key. The server does not get to see it."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the server in captures; by default the name of its program."),
    ] = None,
) -> None:
    """Run a stdio MCP server and capture its messages: put this before the server's command."""
    from governance.policy import load_bundle
    from headrace.app.guard import tap_terms

    running = AppContext.of(context)
    home = running.home.create()
    config = gateway_config(running.settings, home)
    registry = KeyRegistry.load(config.keys)
    environment = environment_of_others()
    if key_env is None:
        presented: str | None = local_client_key(home, registry)
    else:
        presented = environment.pop(key_env, None)
    client = registry.authenticate(presented)
    if client is None:
        place = f"environment variable {key_env}" if key_env else f"{home.secrets}/client.key"
        raise ConfigurationError(f"{place} holds no valid client key; see `headrace keys list`")
    about = Server(
        client,
        route_name(name or PurePath(command[0]).stem),
        f"tap-{secrets.token_hex(12)}",
        trace_parent=environment.get("TRACEPARENT"),
    )
    folder = load_bundle(running.settings.policy.folder).path
    terms = tap_terms(folder, about.name, home, running.secrets)
    tapping = TapSession(config, registry, about, running.secrets.derive(b"spool"), terms)
    code = run_tapped(command, environment, tapping.listen, tapping.counters, tapping.guard)
    if code < 0:
        # End as the server ended, so that whoever waits for us is told the same.
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    raise typer.Exit(code)


class TapSession:
    """The spool of one run, opened once the server runs; without one, everything still passes."""

    def __init__(
        self,
        config: GatewayConfig,
        registry: KeyRegistry,
        server: Server,
        spool_key: bytes,
        terms: GuardTerms | None = None,
    ) -> None:
        self._config, self._registry, self._server = config, registry, server
        self._spool_key = spool_key
        self._terms = terms
        self._guard: CallGuard | None = None
        self._spool: SpoolWriter | None = None
        self._messages: MessageRecorder | None = None
        self.counters = Counters()

    def listen(self) -> "TapSession | None":
        """Open the spool; None where that cannot be done or capture is off."""
        if not self._config.capture:
            return None
        try:
            self._spool = open_spool(self._config.spool, self._spool_key)
        except (OSError, HeadraceError) as error:
            note(f"headrace tap: nothing is captured: {type(error).__name__}")
            return None
        recorder = Recorder(self._spool, self.counters)
        self._messages = MessageRecorder(recorder, self._registry, self._server)
        return self

    def guard(self) -> LineGuard | None:
        """Return what judges the client's lines; None where no rule is about this server."""
        if self._terms is None:
            return None
        ledger = SharedCounters(self._config.limits)
        self._guard = CallGuard(self._terms, ledger, self.counters)
        return LineGuard(self._guard, self._server.name, self._server.client, self.counters, self)

    def message(self, line: bytes, *, from_client: bool) -> str:
        """Record one line; whatever fails in it costs the record alone."""
        if self._messages is None:
            return ""
        try:
            return self._messages.message(line, from_client=from_client)
        except Exception:  # noqa: BLE001 - the message goes on whatever capture does
            self.counters.faults += 1
            return ""

    def decided(self, decisions: Sequence[CallDecision], step_id: str) -> None:
        """Have the lake hear of decisions, as it hears of feedback."""
        assert self._guard is not None  # noqa: S101 - it made them
        said = self._guard.signals(self._server.name, decisions, step_id)
        if self._spool is None or not step_id:
            return
        try:
            write_signals(self._spool, self._server.client, said, step_id=step_id)
        except SpoolUnavailableError:
            self.counters.uncaptured["feedback"] += 1

    def close(self, outcome: ExchangeOutcome) -> None:
        """End what is open, close the spool and say what was lost."""
        if self._messages is not None:
            self._messages.close(outcome)
        if self._spool is not None:
            self._spool.close()
        lost = dict(self.counters.uncaptured)
        if self.counters.faults:
            lost["fault"] = self.counters.faults
        if lost:
            reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(lost.items()))
            note(f"headrace tap: not captured: {reasons}")


def route_name(text: str) -> str:
    """Return the name of a server as routes are named."""
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-_") or "mcp"
