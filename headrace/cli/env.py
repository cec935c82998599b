"""``headrace env``: the lines that point an agent at the gateway."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import JsonOption, Running
from headrace.clients import base_url_environment, local_client_key, proxy_environment
from headrace.installation import gateway_config, missing_default_routes
from headrace.render import note, print_json
from proxy.identity import KeyRegistry
from trajectory.errors import ConfigurationError


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="env")(env)


def env(
    context: typer.Context,
    proxy: Annotated[
        bool,
        typer.Option("--proxy", help="Variables of the intercepting proxy instead of base URLs."),
    ] = False,
    key: Annotated[
        str | None, typer.Option(help="Client key to use; by default this machine's own.")
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            help="With --proxy: write the certificate bundle (and Java's .p12 beside it) to this file."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print what an agent needs in its environment. In a shell: eval "$(headrace env)"."""
    running = Running.of(context)
    home = running.home.create()
    config = gateway_config(running.settings, home)
    client_key = key or local_client_key(home, KeyRegistry.load(config.keys))
    if proxy:
        from proxy.authority import ensure_authority, write_bundle

        authority = ensure_authority(config.authority)
        if bundle is not None or not authority.bundle_path.with_suffix(".p12").exists():
            bundle = write_bundle(authority, bundle)
        path = (bundle or authority.bundle_path).absolute()
        variables = proxy_environment(config, client_key, path)
    else:
        variables = base_url_environment(config, client_key)
    if not variables:
        missing = ", ".join(route.variable for route in missing_default_routes(running.settings))
        raise ConfigurationError(
            f"no route is configured. Set {missing or 'gateway.routes'} for the gateway, or use "
            "`headrace env --proxy` and let the agent keep its own provider key."
        )
    if as_json:
        print_json(variables)
        return
    for name, value in variables.items():
        typer.echo(f"export {name}={shlex.quote(value)}")
    if proxy:
        note(
            "Go passes this machine's own addresses by whatever NO_PROXY says. Java programs must "
            "give the proxy's user and password themselves; for those that do not, name a key in "
            "gateway.forward_key. What cannot be told at all can be redirected (transparent mode). "
            f"Authority: {config.authority}"
        )
