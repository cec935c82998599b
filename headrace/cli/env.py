"""``headrace env``: the lines that point an agent at the gateway."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from headrace.app.clients import base_url_environment, local_client_key, proxy_environment
from headrace.app.context import AppContext
from headrace.app.gateway_client import as_it_runs, knows_key
from headrace.app.installation import DefaultRoute, gateway_config, missing_default_routes
from headrace.app.output import note, print_json
from headrace.cli.common import JsonOption
from proxy.clients.keys import KeyRegistry
from proxy.config import GatewayConfig
from trajectory.errors import ConfigurationError


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="env")(env)


def _why_none(off: tuple[DefaultRoute, ...]) -> str:
    if not off:
        return "the gateway's port for base URLs is off (gateway.port); use `headrace env --proxy`."
    return (
        f"no route: no gateway with one runs here, and {', and '.join(route.why_off or '' for route in off)}. "
        f"Start `headrace up` where {off[0].variable} is the provider's key, or use `headrace env "
        "--proxy` and let the agent keep its own."
    )


def _bundle(config: GatewayConfig, chosen: Path | None) -> Path:
    """Return the certificate bundle that agents trust; it is written where it is not there."""
    from proxy.mitm.authority import ensure_authority, write_bundle

    authority = ensure_authority(config.authority)
    if chosen is not None or not authority.bundle_path.with_suffix(".p12").exists():
        chosen = write_bundle(authority, chosen)
    return (chosen or authority.bundle_path).absolute()


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
    running = AppContext.of(context)
    home = running.home.create()
    config = gateway_config(running.settings, home)
    client_key = key or local_client_key(home, KeyRegistry.load(config.keys))
    if not knows_key(config, client_key):
        note(
            f"the gateway that runs here does not know this key, so it runs from another home than "
            f"{home.root}: name that one with --home or HEADRACE_HOME (`headrace up` printed it)."
        )
    if proxy:
        variables = proxy_environment(config, client_key, _bundle(config, bundle))
    else:
        variables = base_url_environment(as_it_runs(running.settings, config), client_key)
    if not variables:
        raise ConfigurationError(_why_none(missing_default_routes(running.settings)))
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
