"""``headrace tap``: a stdio MCP server as a child whose messages are captured on the way."""

import os
import re
import secrets
import signal
from pathlib import PurePath
from typing import Annotated

import typer

from headrace.app.clients import local_client_key
from headrace.app.context import AppContext
from headrace.app.installation import gateway_config
from headrace.app.output import note
from proxy.clients.keys import KeyRegistry
from proxy.config import GatewayConfig
from proxy.recording.recorder import Recorder
from proxy.recording.spool_factory import open_spool
from proxy.spool import SpoolWriter
from proxy.tap import MessageRecorder, run_tapped
from proxy.tap.messages import Server
from proxy.telemetry.counters import Counters
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
    running = AppContext.of(context)
    home = running.home.create()
    config = gateway_config(running.settings, home)
    registry = KeyRegistry.load(config.keys)
    environment = dict(os.environ)
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
    tapping = TapSession(config, registry, about, running.secrets.derive(b"spool"))
    code = run_tapped(command, environment, tapping.listen, tapping.counters)
    if code < 0:
        # End as the server ended, so that whoever waits for us is told the same.
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    raise typer.Exit(code)


class TapSession:
    """The spool of one run, opened once the server runs; without one, everything still passes."""

    def __init__(
        self, config: GatewayConfig, registry: KeyRegistry, server: Server, spool_key: bytes
    ) -> None:
        self._config, self._registry, self._server = config, registry, server
        self._spool_key = spool_key
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

    def message(self, line: bytes, *, from_client: bool) -> None:
        """Record one line."""
        if self._messages is not None:
            self._messages.message(line, from_client=from_client)

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
