"""``headrace config``: every setting, its value and where it came from."""

import typer

from headrace.cli.common import JsonOption, Running
from headrace.render import jsonable, print_rows
from headrace.settings import environment_variable, explain_settings

app = typer.Typer(help="Settings and where each comes from.", no_args_is_help=True)


@app.command()
def show(context: typer.Context, as_json: JsonOption = False) -> None:
    """Print every setting with its value, its source and its environment variable."""
    rows = [
        {
            "setting": setting.name,
            "value": jsonable(setting.value),
            "source": setting.source,
            "variable": environment_variable(setting.name),
        }
        for setting in explain_settings(home=Running.of(context).home_option)
    ]
    print_rows(rows, as_json=as_json)
