"""``headrace up``: everything on one machine, for a person's own agents."""

import shlex
import socket
import sys
from collections.abc import Sequence

import typer

from headrace.app.clients import base_url_environment, local_client_key
from headrace.app.context import AppContext
from headrace.app.installation import Address, addresses, gateway_config, missing_default_routes
from headrace.app.listener import listener_on
from headrace.app.lock import only_one_up
from headrace.app.output import note
from headrace.cli.common import note_mistyped_variables
from headrace.cli.console import sign_in_link
from headrace.processes.supervisor import Program, Supervisor
from proxy.clients.keys import KeyRegistry
from proxy.config import GatewayConfig, ListenAddress, refuse_clashes
from trajectory.errors import ConfigurationError

_NIGHT_SECONDS = 60.0
"""How long a night of training may take to stop."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="up")(up)


def up(context: typer.Context) -> None:
    """Run the gateway, the governing process and the console together until Ctrl-C.

    Creates missing parts of the home folder: keys, a certificate authority, the lake.
    """
    from governance.policy import load_bundle
    from proxy.mitm.authority import ensure_authority
    from train.runs.folders import delete_conversations

    running = AppContext.of(context)
    home = running.home.create()
    _ = running.secrets
    config = gateway_config(running.settings, home)
    note_mistyped_variables()
    load_bundle(running.settings.policy.folder)  # told here, not in the governor's log
    _refuse_clashes(running, config)
    _refuse_taken_ports(config)
    with only_one_up(home):  # another `up` of this home is told before anything is started
        ensure_authority(config.authority)
        # Maintenance notes in the lake that their runs were interrupted.
        delete_conversations(home.runs)
        key = local_client_key(home, KeyRegistry.load(config.keys))
        programs = _programs(running, config)
        note("starting …")
        Supervisor(programs, report=note).run(
            is_ready=lambda: all(_answers(place) for place in addresses(config).values()),
            announce=lambda: _announce(running, config, key, programs),
        )


def _programs(running: AppContext, config: GatewayConfig) -> list[Program]:
    """Return what runs beside each other under these settings."""
    logs, home = running.home.logs, ("--home", str(running.home.root))
    drain = config.drain_seconds + 10
    programs = [
        Program("gateway", (*home, "gateway"), logs / "gateway.log", drain, needed=True),
        Program("govern", (*home, "govern"), logs / "govern.log", needed=True),
    ]
    if running.settings.sql_server.enabled:
        try:
            _ = running.lake  # the server only reads, so somebody else must have made it
        except Exception as error:  # noqa: BLE001 - the gateway captures without a lake
            note(f"the lake cannot be opened ({type(error).__name__}); the SQL server waits for it")
        programs.append(Program("sql-server", (*home, "sql-server"), logs / "sql-server.log"))
    if any(route.model for route in config.routes):
        programs.append(Program("serve", (*home, "serve"), logs / "serve.log"))
    console = running.settings.console
    if console.enabled and not _is_taken(Address(console.host, console.port), "console"):
        programs.append(Program("console", (*home, "console"), logs / "console.log"))
    if running.settings.train.schedules:
        log = logs / "schedule.log"
        programs.append(Program("schedule", (*home, "schedule", "watch"), log, _NIGHT_SECONDS))
    return programs


def _announce(
    running: AppContext, config: GatewayConfig, key: str, programs: Sequence[Program]
) -> None:
    """Say what listens where, and how to point an agent at it."""
    for name, place in addresses(config).items():
        note(f"{name:>8}  {place.for_clients}")
    if (sql_server := running.settings.sql_server).enabled:
        note(f"     sql  {Address(sql_server.host, sql_server.port).for_clients}")
    if any(program.name == "console" for program in programs):
        note(f" console  {_console_link(running)}")
    note(f"    home  {running.home.root}")
    for route in missing_default_routes(running.settings):
        note(f"          route {route.name} is off: {route.why_off}; set it and start again")
    note("")
    for line in pointing_lines(base_url_environment(config, key)):
        note(line)
    note('or through the intercepting proxy: eval "$(headrace env --proxy)"')
    note('ask what it did: headrace sql "select * from trajectories"')


def _console_link(running: AppContext) -> str:
    """Return where the console is; at a terminal with a token that signs in once."""
    console = running.settings.console
    if console.url:
        return console.url
    if not sys.stderr.isatty():
        place = Address(console.host, console.port).for_clients
        return f"http://{place} (sign in: headrace console --link)"
    return f"{sign_in_link(running)} (signs you in once, within an hour)"


def _is_taken(place: Address, name: str) -> bool:
    """Tell whether somebody listens there already; what is not needed is left out then, and that is said."""
    if not place.port or not _answers(place):
        return False
    note(
        f"{place.for_clients} ({name}) is taken by {listener_on(place.port)}: the {name} is not "
        f"started; set another {name}.port"
    )
    return True


def _refuse_clashes(running: AppContext, config: GatewayConfig) -> None:
    """Refuse settings by which a program would listen where another one does.

    Else whichever comes second ends, again and again, and agents stand before a closed door.
    """
    console, serve = running.settings.console, running.settings.serve
    places = [*config.places, *running.settings.sql_server.places]
    if console.enabled:
        places.append(ListenAddress("console.port", console.host, console.port))
    if any(route.model for route in config.routes):
        places.append(ListenAddress("serve.port", serve.host, serve.port))
    try:
        refuse_clashes(place for place in places if place.port)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def _refuse_taken_ports(config: GatewayConfig) -> None:
    for name, place in addresses(config).items():
        if _answers(place):
            setting = "port" if name == "listen" else f"{name}_port"
            raise ConfigurationError(
                f"{place.for_clients} ({name}) is taken by {listener_on(place.port)}. Stop that, or "
                f"set another gateway.{setting}."
            )


def _answers(place: Address) -> bool:
    host = place.for_clients.rpartition(":")[0].strip("[]")
    try:
        socket.create_connection((host, place.port), timeout=1).close()
    except OSError:
        return False
    return True


def pointing_lines(variables: dict[str, str]) -> list[str]:
    """Return what points an agent at the gateway; without a terminal the key is not printed."""
    if not variables:
        return []
    if not sys.stderr.isatty():
        return ['point an agent at it: eval "$(headrace env)"']
    exports = [f"  export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return ["point an agent at it (headrace env):", *exports]
