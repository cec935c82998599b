"""``headrace sql-server``: the lake over the network, for BI tools and notebooks."""

import typer

from headrace.app.context import AppContext
from headrace.app.log import log, start_log


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="sql-server")(sql_server)


def sql_server(context: typer.Context) -> None:
    """Let BI tools and notebooks read the lake over the network until SIGTERM.

    Speaks Arrow Flight SQL (ADBC, JDBC) and SQL over HTTP. Keys: headrace keys create --tenant NAME
    --role lake. Where it listens and what a query may use are the settings sql_server.*.
    """
    from headrace.services.sql_server import serve, sql_service
    from lakehouse.lake import Lake

    running = AppContext.of(context)
    home = running.home.create()
    place = running.settings.lake
    lake = Lake.read(place.path, options=place.options)
    service = sql_service(running.settings, home, running.secrets, lake)
    start_log()
    serve(service, running.settings.sql_server, announce=log)
