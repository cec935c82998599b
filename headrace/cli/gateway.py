"""``headrace gateway``: the capturing gateway alone, as it is deployed in front of agents."""

import typer

from headrace.cli.common import Running
from headrace.installation import gateway_config


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="gateway")(gateway)


def gateway(context: typer.Context) -> None:
    """Run the gateway until SIGTERM, which lets calls in flight finish."""
    from proxy.gateway import serve

    running = Running.of(context)
    home = running.home.create()
    secrets = running.secrets
    serve(
        gateway_config(running.settings, home),
        spool_key=secrets.derive(b"spool"),
        fingerprint_key=secrets.derive(b"fingerprint"),
    )
