"""``headrace serve``: the server of registered models, for routes that name one."""

from typing import Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.log import log


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="serve")(serve)


def serve(
    context: typer.Context,
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names in the registry; by default the models of the routes, else all."
        ),
    ] = None,
) -> None:
    """Serve the versions that are live or on trial to the gateway, until SIGTERM.

    Promotion, rollback and trials take effect by themselves, each once its version is loaded.
    `headrace up` runs this where a route names a model.
    """
    from headrace.serving.reconciler import serve_models

    running = AppContext.of(context)
    routed = {route.model for route in running.settings.gateway.routes if route.model}
    serve_models(
        running.settings.serve,
        running.home.create(),
        names=models or sorted(routed),
        announce=log,
    )
