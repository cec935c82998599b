"""``headrace console``: Headrace in a browser."""

import ipaddress
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.installation import Address
from headrace.app.log import log, start_log
from headrace.app.output import moment, note, print_rows
from headrace.app.settings import ConsoleSettings
from headrace.cli.common import JsonOption
from trajectory.errors import ConfigurationError, WorkError

if TYPE_CHECKING:
    from headrace.console.page import Console
    from headrace.console.sessions import SessionStore


app = typer.Typer(help="Headrace in a browser.")


@app.callback(invoke_without_command=True)
def console(
    context: typer.Context,
    link: Annotated[
        bool,
        typer.Option(
            "--link", help="Only print a link that signs in once to the console that runs already."
        ),
    ] = False,
) -> None:
    """Open the console, Headrace in a browser, until Ctrl-C or SIGTERM.

    It prints a link that signs you in once, within an hour. Where it listens, and who may do what
    behind a proxy that signs people in, are the settings console.*.
    """
    if context.invoked_subcommand is not None:
        return
    from headrace.console.page import Console
    from headrace.console.users import TrustedProxies
    from headrace.services.sql_server import sql_service

    running = AppContext.of(context)
    home = running.home.create()
    settings = running.settings.console
    if link:
        typer.echo(sign_in_link(running))
        return
    _refuse_open_console(settings)
    start_log()
    service = sql_service(running.settings, home, running.secrets, running.lake)
    provider = None
    if settings.oidc.issuer:
        from headrace.console.oidc import IdentityProvider

        provider = IdentityProvider(settings.oidc)
    opened = Console(running, service, _sessions(running), TrustedProxies(settings), provider)
    try:
        _serve(opened, settings)
    finally:
        opened.close()


@app.command("sessions")
def sessions(context: typer.Context, as_json: JsonOption = False) -> None:
    """List who is signed in, in a browser or at the command line."""
    rows = [
        {
            "session": one.session,
            "name": one.name,
            "authority": one.authority,
            "door": one.door,
            "begun": moment(one.begun),
            "seen": moment(one.seen),
            "ends": moment(one.ends),
        }
        for one in _sessions(AppContext.of(context)).list()
    ]
    print_rows(rows, as_json=as_json, empty="nobody is signed in")


@app.command("end-session")
def end_session(
    context: typer.Context,
    session: Annotated[str, typer.Argument(help="As `headrace console sessions` names it.")],
) -> None:
    """End a session at once: who has it must sign in again."""
    running = AppContext.of(context)
    name = _sessions(running).revoke(session)
    if name is None:
        raise ConfigurationError(
            f"no session {session!r}; `headrace console sessions` lists those that go on."
        )
    running.audit.append(actor=running.user.name, action="console.session_ended", subject=name)
    typer.echo(f"the session of {name} has ended")


def sign_in_link(running: AppContext, port: int | None = None) -> str:
    """Return a link that signs the user of this machine in once, within an hour."""
    from headrace.console.users import system_user

    token = _sessions(running).issue_token(system_user())
    place = Address("127.0.0.1", port or running.settings.console.port).for_clients
    return f"http://{place}/sign-in?token={token}"


def _sessions(running: AppContext) -> "SessionStore":
    from headrace.console.sessions import SessionStore

    return SessionStore.of(running.home.create().sessions, running.settings.console)


def _serve(opened: "Console", settings: ConsoleSettings) -> None:
    """Answer until a signal; a token is printed for a person alone, in no log."""
    from headrace.console.app import application
    from trajectory.http_server import HttpServer

    over = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        server = HttpServer(application(opened), host=settings.host, port=settings.port)
    except OSError as error:
        raise WorkError(
            f"the console cannot listen at {settings.host}:{settings.port}: {error.strerror}; set "
            "another console.port"
        ) from error
    with server:
        log(
            f"console     {settings.url or f'http://{Address(settings.host, server.port).for_clients}'}"
        )
        if sys.stderr.isatty():
            note(f"sign in once: {sign_in_link(opened.running, server.port)}")
        else:
            log("sign in:    headrace console --link")
        over.wait()


def _refuse_open_console(settings: ConsoleSettings) -> None:
    """Refuse to listen beyond this machine in clear, with nobody to sign people in.

    Raises:
        ConfigurationError: a setting is missing.
    """
    try:
        is_local = settings.host == "localhost" or ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        is_local = False
    if not is_local and not (settings.url and (settings.proxies or settings.oidc.issuer)):
        raise ConfigurationError(
            f"console.host {settings.host} is beyond this machine, and the console speaks no TLS: put a "
            "proxy in front that does, and set console.url, and console.oidc or console.proxies for who "
            "signs people in"
        )
