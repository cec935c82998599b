"""``headrace schedule``: nights of training, run here or by the user's own scheduler."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.app.context import AppContext
from headrace.app.log import log
from headrace.app.output import jsonable, note, print_fields, print_rows
from headrace.cli.common import JsonOption, interruptible
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from headrace.schedule.scheduler import Scheduler
    from train.schedule import Schedule

app = typer.Typer(
    help="Schedules: when nights decide and train, and under which conditions.",
    no_args_is_help=True,
)

FileArgument = Annotated[Path, typer.Argument(help="YAML document of kind Schedule.")]


@app.command("list")
def list_schedules(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the schedules of the settings (train.schedules): next time and last outcome."""
    from train.schedule import next_time

    running = AppContext.of(context)
    rows = []
    for schedule in _configured(running):
        nights = _scheduler(running, [schedule]).diary(schedule).nights()
        last: dict[str, Any] = next((night for night in reversed(nights) if "begun" in night), {})
        rows.append(
            {
                "schedule": schedule.metadata.name,
                "cron": f"{schedule.spec.cron} {schedule.spec.time_zone}",
                "next": next_time(schedule.spec, datetime.now(UTC)),
                "last": last.get("begun"),
                "outcome": last.get("outcome"),
                "reasons": "; ".join(last.get("reasons", ())),
            }
        )
    print_rows(rows, as_json=as_json, empty="no schedules: name their files in train.schedules")


@app.command()
def check(context: typer.Context, file: FileArgument, as_json: JsonOption = False) -> None:
    """Check a schedule and the files that it names; show its next five times."""
    from itertools import islice

    from evolve.policy import load_evolution
    from headrace.schedule.runner import recipe_kind
    from train.schedule import load_schedule, occurrences
    from train.substrate.spec import load_substrate

    AppContext.of(context)
    schedule = load_schedule(file)
    spec = schedule.spec
    fields = {
        "schedule": schedule.metadata.name,
        "substrate": load_substrate(spec.substrate).metadata.name,
        "recipes": ", ".join(recipe_kind(recipe) for recipe in spec.recipes),
        "model": spec.model,
        "evolution": None
        if spec.evolution is None
        else load_evolution(spec.evolution).metadata.name,
        "next": [
            moment.astimezone(spec.zone).isoformat(timespec="minutes")
            for moment in islice(occurrences(spec, datetime.now(UTC)), 5)
        ],
    }
    print_fields(fields, as_json=as_json)


@app.command()
def run(
    context: typer.Context,
    file: FileArgument,
    if_due: Annotated[
        bool,
        typer.Option("--if-due", help="Run only if a night is due or was missed."),
    ] = False,
    as_of: Annotated[
        str | None,
        typer.Option(
            help="Decide by the nights before this day (2026-05-31), as `headrace evolve run` does; "
            "tomorrow's takes in the day that is under way."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run one night now, under the schedule's conditions.

    Exit codes: 0 when a candidate passed or there was nothing to do; 1 when its gate or its inspection
    refused it; 3 when the work failed or its deadline passed.
    """
    from train.runs.folders import sweep
    from train.schedule import load_schedule

    running = AppContext.of(context)
    schedule = load_schedule(file)
    if as_of is not None and (if_due or schedule.spec.evolution is None):
        raise ConfigurationError(
            "--as-of is for a night now of a schedule that names spec.evolution: without that "
            "there is no decision, and what is due has a day of its own"
        )
    scheduler = _scheduler(running, [schedule])
    sweep(running.lake, running.home.runs)
    with interruptible():
        night = scheduler.look(schedule) if if_due else scheduler.run(schedule, as_of=as_of)
    if night is None:
        note("no night is due")
        return
    fields = jsonable(night)
    del fields["item_ids"]
    print_fields(fields, as_json=as_json)
    code = {"refused": 1, "failed": 3, "deadline": 3}.get(night.outcome, 0)
    if code:
        raise typer.Exit(code)


@app.command()
def watch(context: typer.Context) -> None:
    """Run the schedules of the settings when they are due, until Ctrl-C; ``headrace up`` does this."""
    running = AppContext.of(context)
    schedules = _configured(running)
    if not schedules:
        raise ConfigurationError("there is nothing to watch: name files in train.schedules")
    with interruptible():
        _scheduler(running, schedules).watch()


@app.command()
def history(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the schedule.")],
    as_json: JsonOption = False,
) -> None:
    """Show the history of a schedule, night by night, the latest last."""
    from headrace.schedule.scheduler import NightHistory

    nights = NightHistory(AppContext.of(context).home.state / "schedules", name).nights()
    rows = [
        {
            "due": night["due"],
            "outcome": night["outcome"],
            "substrate": night.get("substrate"),
            "models": ", ".join(night.get("models", ())),
            "artifacts": ", ".join(night.get("artifacts", ())),
            "promoted": ", ".join(night.get("promoted", ())),
            "reasons": "; ".join(night.get("reasons", ())),
        }
        for night in nights
    ]
    print_rows(rows, as_json=as_json, empty=f"no schedule {name!r} ever ran here")


@app.command()
def export(
    context: typer.Context,
    form: Annotated[str, typer.Argument(metavar="FORMAT", help="cron, systemd, k8s or airflow.")],
    file: FileArgument,
    at: Annotated[
        Path | None, typer.Option(help="Path of the document on the scheduler's machine.")
    ] = None,
) -> None:
    """Print a schedule in the format of cron, systemd, Kubernetes or Airflow."""
    from headrace.schedule import export as schedule_export
    from train.schedule import load_schedule

    if form not in schedule_export.FORMATS:
        valid = ", ".join(schedule_export.FORMATS)
        raise ConfigurationError(f"unknown format {form!r}; valid: {valid}.")
    running = AppContext.of(context)
    schedule = load_schedule(file)
    try:
        text = schedule_export.export(
            schedule, form, file=at or file.resolve(), home=running.home.root.resolve()
        )
    except ValueError as error:
        raise ConfigurationError(f"{file}: spec.cron: {error}") from None
    typer.echo(text, nl=False)


def _configured(running: AppContext) -> list["Schedule"]:
    from train.schedule import load_schedule

    return [load_schedule(path) for path in running.settings.train.schedules]


def _scheduler(running: AppContext, schedules: "list[Schedule]") -> "Scheduler":
    from headrace.schedule.runner import headrace_commands
    from headrace.schedule.scheduler import Scheduler

    home = running.home.create()
    commands = headrace_commands(home.root, home.logs / "schedule-commands.log")
    return Scheduler(schedules, home, commands, report=log)
