"""``headrace config``: every setting, its value and where it came from."""

import json
from typing import Any

import typer

from headrace.app.context import AppContext
from headrace.app.output import jsonable, print_rows
from headrace.app.setting_sources import environment_variable, explain_settings
from headrace.cli.common import JsonOption

app = typer.Typer(help="Settings and where each comes from.", no_args_is_help=True)


@app.command()
def show(context: typer.Context, as_json: JsonOption = False) -> None:
    """Print every setting with its value, its source and its environment variable."""
    rows = [
        {
            "setting": setting.name,
            "value": jsonable(setting.value) if as_json else _shown(setting.value),
            "source": setting.source,
            "variable": environment_variable(setting.name),
        }
        for setting in explain_settings(home=AppContext.of(context).home_option)
    ]
    print_rows(rows, as_json=as_json)


def _shown(value: Any) -> str:
    """Return a value as it is written in YAML; routes by their names."""
    if isinstance(value, list) and all(isinstance(one, dict) and "name" in one for one in value):
        return ", ".join(one["name"] for one in value) or "–"
    return json.dumps(jsonable(value)) if isinstance(value, list | dict) else str(value)
