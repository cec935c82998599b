"""``headrace lineage``: where a model's rows came from, and where a row went."""

from typing import Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import (
    console,
    jsonable,
    note,
    print_fields,
    print_json,
    print_rows,
    styled,
)
from headrace.cli.common import JsonOption

_SHOWN_ROWS = 10
_IS_STEP = "SELECT 1 FROM steps WHERE step_id = $id OR exchange_id = $id LIMIT 1"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="lineage")(lineage)


def lineage(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            help="NAME@VERSION of a model or an artefact, or a trajectory, step or exchange id."
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Trace a step or a trajectory on to what learned from it, or a version back to what it came from."""
    from headrace.services.lineage import is_adopted, lineage_of
    from train.registry.artifacts import ArtifactRegistry
    from train.registry.lineage import lineage_of_exchange, lineage_of_model, lineage_of_step

    running = AppContext.of(context)
    models = running.home.models
    artifacts = ArtifactRegistry(running.home.artifacts, source=running.lake)
    name, _, version = what.partition("@")
    is_step = running.lake.query(_IS_STEP, parameters={"id": what}).num_rows > 0
    is_told_by_run = "@" in what and name not in artifacts.names()
    is_elsewhere = is_told_by_run and is_adopted(running, name, version)
    if is_elsewhere or not (is_step or is_told_by_run):
        print_fields(jsonable(lineage_of(running, what)), as_json=as_json)
        return
    if is_told_by_run:
        of_model = lineage_of_model(running.lake, name, version, models=models)
        if as_json:
            print_json(jsonable(of_model))
            return
        chain = (
            f" ← run {of_model.run_id} ({of_model.recipe}) ← substrate "
            f"{of_model.substrate}@{of_model.substrate_version} ← {len(of_model.rows)} rows of "
            f"{len(of_model.subjects)} subjects"
        )
        console().print(styled((what, "bold"), chain))
        if of_model.ancestors:
            note(
                f"it began with {', which began with '.join(of_model.ancestors)}; their rows count"
            )
        shown = of_model.rows[:_SHOWN_ROWS]
        print_rows([jsonable(row) for row in shown], as_json=False)
        if len(of_model.rows) > len(shown):
            note(f"… and {len(of_model.rows) - len(shown)} more (--json lists all)")
        return
    steps = lineage_of_exchange(running.lake, what) or (what,)
    found = [lineage_of_step(running.lake, step, models=models) for step in steps]
    if as_json:
        print_json([jsonable(step) for step in found])
        return
    for step in found:
        console().print(styled(step.line()))
