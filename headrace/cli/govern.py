"""``headrace govern``: carry what was captured through governance into the lake."""

from typing import Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.log import log, start_log
from headrace.app.output import print_fields, progress
from headrace.cli.common import EngineOption, JsonOption


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="govern")(govern)


def govern(
    context: typer.Context,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when the spool holds no finished exchange.")
    ] = False,
    engine: EngineOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read the spool, rebuild trajectories, apply policy, and write the lake, until stopped."""
    from headrace.app.lock import only_one
    from headrace.engine import engine_of, open_engine
    from headrace.govern.spool_expiry import sweep_raw
    from headrace.govern.worker import build_pipeline, govern_once, govern_until_stopped

    running = AppContext.of(context)
    home = running.home.create()
    name = engine_of(running.settings, engine)
    with (
        only_one(home.state),
        open_engine(name, running.settings, home, running.secrets) as opened,
    ):
        sweep_raw(running.settings, home, running.audit)
        pipeline = build_pipeline(running.settings, home, running.secrets, log, engine=opened)
        if not once:
            start_log()
            govern_until_stopped(pipeline, running.settings, running.secrets, log)
            return
        totals: dict[str, int] = {"batches": 0, "records": 0, "signals": 0, "damaged": 0}
        with progress("governing", quiet=as_json) as advance:
            for report in govern_once(pipeline):
                totals["batches"] += 1
                totals["records"] += report.records
                totals["signals"] += report.signals
                totals["damaged"] += report.damaged
                if report.without_folder:
                    totals["without_folder"] = (
                        totals.get("without_folder", 0) + report.without_folder
                    )
                for name, count in report.dispositions.items():
                    totals[name] = totals.get(name, 0) + count
                advance(totals["records"])
        print_fields(totals, as_json=as_json)
