"""``headrace login``, ``logout`` and ``whoami``: who you are, at the command line as in the console."""

from typing import Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import note, print_fields
from headrace.cli.common import JsonOption


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(name="login")(login)
    app.command(name="logout")(logout)
    app.command(name="whoami")(whoami)


def login(
    context: typer.Context,
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65_535,
            help="Where the browser comes back to on this machine; 0 takes any. Over SSH: `ssh -L PORT:127.0.0.1:PORT`.",
        ),
    ] = 0,
) -> None:
    """Sign in at the identity provider (settings console.oidc), so that you are the same as in the console."""
    from headrace.console.login import log_in

    running = AppContext.of(context)
    user = log_in(
        running, port, lambda address: note(f"open this in a browser on this machine:\n{address}")
    )
    typer.echo(f"you are {user.name}")
    if not user.roles:
        note("none of your groups has a role here (console.groups)")


def logout(context: typer.Context) -> None:
    """End the sign-in of the command line; you are the user of this machine again."""
    from headrace.console.login import log_out
    from headrace.console.users import system_user

    ended = log_out(AppContext.of(context))
    said = "signed out" if ended else "nobody was signed in"
    typer.echo(f"{said}; you are {system_user().name}")


def whoami(context: typer.Context, as_json: JsonOption = False) -> None:
    """Say who you are here, who vouches for it, and which roles you have in whose data."""
    user = AppContext.of(context).user
    roles = [
        f"{role} in {'every tenant' if tenant == '*' else tenant}"
        for role, tenant in sorted(user.roles)
    ]
    print_fields(
        {
            "name": user.name,
            "authority": user.authority,
            "roles": roles if as_json else ", ".join(roles) or "none",
        },
        as_json=as_json,
    )
