"""``headrace lake``: the state of the tables and their upkeep."""

import typer

from headrace.cli.common import JsonOption, Running
from headrace.render import jsonable, print_fields, print_json, print_rows

app = typer.Typer(help="The tables: status and upkeep.", no_args_is_help=True)


@app.command()
def status(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show rows, bytes, files, freshness and what expires when."""
    from headrace.freshness import spool_lag
    from lakehouse.status import lake_status

    running = Running.of(context)
    report = lake_status(running.lake)
    lag = spool_lag(running.settings, running.home, running.secrets)
    if as_json:
        print_json({"lake": jsonable(report), "spool": jsonable(lag)})
        return
    print_rows([jsonable(table) for table in report.tables], as_json=False, title=str(report.root))
    fields = {
        name: value for name, value in jsonable(report).items() if name not in ("tables", "root")
    }
    print_fields(
        fields | {"spool_records_waiting": lag.records, "spool_bytes_waiting": lag.bytes},
        as_json=False,
    )
