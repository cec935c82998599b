"""``headrace quality``: how good what was stored is, and whether it drifts."""

from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import JsonOption, Running
from headrace.render import jsonable, note, print_json, print_rows
from trajectory.errors import ConfigurationError

app = typer.Typer(help="Quality of what was stored.", no_args_is_help=True)


@app.command()
def report(
    context: typer.Context,
    day: Annotated[
        str | None, typer.Option(help="UTC day, YYYY-MM-DD; by default yesterday.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="So many days up to and with it.")] = 1,
    reference_days: Annotated[
        int, typer.Option(min=1, help="Days before them that drift is measured against.")
    ] = 14,
    drift_from: Annotated[float, typer.Option(min=0, help="Index from which drift counts.")] = 0.25,
    html: Annotated[
        Path | None, typer.Option(help="Write the page (Data Docs) to this file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check stored steps by the Quality policy and against a reference window. Exit 1 on findings."""
    from governance.policy import load_bundle
    from governance.quality.docs import page, results
    from governance.quality.drift import drift
    from governance.trial.dry_run import STORED
    from headrace.dry_running import quarantine_reasons, stored_facts

    running = Running.of(context)
    try:
        last = date.fromisoformat(day) if day else datetime.now(UTC).date() - timedelta(days=1)
    except ValueError:
        raise ConfigurationError(f"--day {day}: not a day; write 2026-05-31.") from None
    until = datetime.combine(last + timedelta(days=1), time(), UTC)
    since = until - timedelta(days=days)
    bundle = load_bundle(Path(running.settings.policy.bundle))
    now = stored_facts(running.lake, since, until)
    before = stored_facts(running.lake, since - timedelta(days=reference_days), since)
    found = results(bundle.quality.spec, now, STORED)
    drifts = drift(now, before)
    held = quarantine_reasons(running.lake, since, until)
    if html is not None:
        text = page(
            title=f"Quality of {since.date()} to {last}",
            policy_hash=bundle.content_hash,
            steps=len(now),
            reference_steps=len(before),
            expectations=found,
            quarantine=held,
            drifts=drifts,
            drift_from=drift_from,
        )
        html.write_text(text, encoding="utf-8")
    if as_json:
        print_json(
            {
                "steps": len(now),
                "reference_steps": len(before),
                "expectations": jsonable(found),
                "quarantine": dict(held),
                "drift": jsonable(drifts),
            }
        )
    else:
        print_rows([jsonable(one) for one in found], as_json=False, title="expectations")
        print_rows([jsonable(one) for one in drifts], as_json=False, title="drift")
        note(f"{len(now)} steps, {sum(count for _, count in held)} exchanges held back")
    drifted = any(one.index is not None and one.index >= drift_from for one in drifts)
    if drifted or any(one.failed for one in found):
        raise typer.Exit(1)
