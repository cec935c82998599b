"""``headrace lake``: the state of the tables and their maintenance."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import jsonable, note, print_fields, print_json, print_rows, progress
from headrace.cli.common import JsonOption, YesOption, confirm

app = typer.Typer(help="The tables: status and maintenance.", no_args_is_help=True)


@app.command()
def status(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show rows, bytes, files, freshness, growth, the next vacuum, what expires when, and which homes write here."""
    from headrace.services.homes import Homes
    from headrace.services.lake_report import home_rows, print_status, spool_lag
    from lakehouse.maintenance.status import lake_status

    running = AppContext.of(context)
    report = lake_status(running.lake, vacuum_hours=running.settings.lake.vacuum_hours)
    lag = spool_lag(running.settings, running.home, running.secrets)
    homes = home_rows(Homes.of(running), running.lake.query)
    if as_json:
        print_json({"lake": jsonable(report), "spool": jsonable(lag), "homes": jsonable(homes)})
    else:
        print_status(report, lag, homes)


@app.command()
def forget(
    context: typer.Context,
    home: Annotated[
        str, typer.Argument(help="Name of the home, as `headrace lake status` has it.")
    ],
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Forget a home that is gone: its legal holds keep nothing any more. Its rows stay."""
    from headrace.services.homes import Homes

    running = AppContext.of(context)
    confirm(f"Forget home {home}, with its legal holds?", yes=yes)
    forgotten = Homes.of(running).forget(home)
    told = () if forgotten is None else forgotten.legal_holds
    holds = [one.name for one in told]
    running.audit.append(
        actor=running.user.name,
        action="lake.home_forgotten",
        subject=home,
        detail={"legal_holds": [*holds]},
    )
    print_fields({"home": home, "legal holds": holds}, as_json=as_json)


@app.command()
def maintain(context: typer.Context, as_json: JsonOption = False) -> None:
    """Do what is due: retention sweep, compaction, checkpoints, log clean-up, vacuum, killed runs.

    The governing process runs it by itself, every `govern.maintenance_seconds`.
    """
    from governance.identifiers import Namer
    from headrace.app.guard import approvals_of
    from headrace.govern.maintenance import maintain_home
    from headrace.govern.spool_expiry import sweep_raw
    from headrace.services.holds import holds_of

    running = AppContext.of(context)
    settings, home = running.settings.lake, running.home.create()
    with progress("maintaining", quiet=as_json) as advance:
        holds = holds_of(running)
        done = maintain_home(
            running.lake,
            settings,
            home,
            running.audit,
            actor=running.user.name,
            holds=holds,
            namer=Namer(running.secrets.derive(b"message")),
            progress=advance,
        )
    approvals_of(home, running.secrets).expire()
    if done.leap is None:
        sweep_raw(running.settings, home, running.audit)
    else:
        note(
            f"the clock is {done.leap.days} days ahead of the last round: nothing is removed by it until it "
            "has gone on for a day; correct it, or run `headrace lake expire` to remove what is due now"
        )
    if as_json:
        print_json(jsonable(done))
        return
    changed = [table for table in done.tables if table.partitions or table.vacuumed]
    print_rows([jsonable(table) for table in changed], as_json=False, empty="nothing was due")
    if done.sweep is not None:
        print_fields({"expired trajectories": len(done.sweep.reach.trajectories)}, as_json=False)


@app.command()
def compact(context: typer.Context, as_json: JsonOption = False) -> None:
    """Join small files, sorted by trajectory and step; safe beside writers."""
    from lakehouse.maintenance.table_maintenance import compact as compact_tables

    done = compact_tables(AppContext.of(context).lake)
    shown = [jsonable(table) for table in done if as_json or table.partitions]
    print_rows(shown, as_json=as_json, empty="nothing to compact")


_PRICES = """
SELECT s.tenant_id AS tenant, s.model_served AS model, p.currency, p.input_per_million AS input,
       p.cached_input_per_million AS cached, p.output_per_million AS output, p.up_to_input_tokens,
       p.valid_from AS since,
       CASE WHEN p.model IS NULL THEN 'no price, costs are not measured'
            ELSE coalesce(p.source, 'recorded by a person') END AS source
FROM (SELECT DISTINCT tenant_id, model_served FROM steps WHERE model_served IS NOT NULL) s
LEFT JOIN prices_latest p ON s.tenant_id = p.tenant_id AND s.model_served = p.model
ORDER BY ALL
"""


@app.command()
def price(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="Model version, as in the column model_served.")],
    tenant: Annotated[str, typer.Option(help="Tenant that the price applies to.")],
    input_price: Annotated[
        float, typer.Option("--input", min=0, help="Price of a million input tokens.")
    ],
    output_price: Annotated[
        float, typer.Option("--output", min=0, help="Price of a million output tokens.")
    ],
    cached: Annotated[
        float | None,
        typer.Option(min=0, help="Price of a million cached input tokens; by default as input."),
    ] = None,
    currency: Annotated[str, typer.Option(help="Currency of the prices.")] = "USD",
    since: Annotated[
        datetime | None,
        typer.Option("--from", help="UTC day or moment from which the price applies."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Record the price of a model, for the views of cost; a later entry replaces an earlier one."""
    row = {
        "tenant_id": tenant,
        "model": model,
        "valid_from": (since or datetime(2000, 1, 1)).replace(tzinfo=UTC),  # noqa: DTZ001 (UTC is added)
        "recorded_at": datetime.now(UTC),
        "currency": currency,
        "input_per_million": input_price,
        "cached_input_per_million": cached,
        "output_per_million": output_price,
    }
    AppContext.of(context).lake.append_rows("prices", [row])
    print_fields(jsonable(row), as_json=as_json)


@app.command()
def prices(context: typer.Context, as_json: JsonOption = False) -> None:
    """Record the price table's prices of every model in the lake, and list what each model costs.

    Governing does so for the models that it sees. A price of `headrace lake price` holds before the table's.
    """
    from lakehouse.price_records import RecordedPrices
    from trajectory.prices import load_prices

    running = AppContext.of(context)
    RecordedPrices(running.lake, load_prices(running.settings.gateway.prices)).record_all()
    rows = running.lake.query(_PRICES).to_pylist()
    print_rows(jsonable(rows), as_json=as_json, empty="no model has answered so far")


@app.command()
def vacuum(
    context: typer.Context,
    hours: Annotated[
        float | None,
        typer.Option(
            help="How long files that left a table stay for time travel; by default lake.vacuum_hours."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted; delete nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove files that left the tables longer ago than the horizon."""
    from lakehouse.maintenance.table_maintenance import vacuum as vacuum_tables

    running = AppContext.of(context)
    hours = running.settings.lake.vacuum_hours if hours is None else hours
    removed = vacuum_tables(running.lake, hours=hours, dry_run=dry_run)
    rows = [{"table": table, "files": len(files)} for table, files in removed.items()]
    print_rows(rows, as_json=as_json)


@app.command()
def verify(context: typer.Context, as_json: JsonOption = False) -> None:
    """Check hashes, references, counts and statistics. Exit code 1 when something is wrong."""
    from headrace.govern.checkpoint import CheckpointStore, missing_batches
    from lakehouse.maintenance.verify import Violation
    from lakehouse.maintenance.verify import verify as verify_lake

    running = AppContext.of(context)
    done = CheckpointStore(running.home.state).load()  # before the lake, which goes on meanwhile
    report = verify_lake(running.lake, message_key=running.secrets.derive(b"message"))
    if missing := missing_batches(done, running.lake):
        check = "batches that were done are in the lake"
        lost = Violation(check, "error", "exchanges", missing, (done.application,))
        report = replace(report, findings=(lost, *report.findings))
    if as_json:
        print_json(jsonable(report))
    else:
        print_rows(
            [jsonable(finding) for finding in report.findings], as_json=False, empty="all well"
        )
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def expire(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted; delete nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove rows whose retention has ended; a legal hold keeps them.

    Raw captures that nobody governed in `gateway.spool.max_age_hours` go too.
    """
    from headrace.govern.near_duplicates import sweep_near
    from headrace.govern.spool_expiry import sweep_raw
    from headrace.services.holds import holds_of
    from lakehouse.erasure.erase import expire as expire_rows
    from train.runs.folders import sweep as sweep_runs

    running = AppContext.of(context)
    with progress("expiring", quiet=as_json) as advance:
        holds = holds_of(running)
        report = expire_rows(running.lake, dry_run=dry_run, progress=advance, holds=holds)
    raw = sweep_raw(running.settings, running.home, running.audit, dry_run=dry_run)
    if not dry_run:
        sweep_near(running.home, running.lake)
        sweep_runs(running.lake, running.home.runs)
        running.audit.append(
            actor=running.user.name,
            action="retention.swept",
            subject=report.removal_id,
            detail={"rows": dict(report.rows), "held": report.held},
        )
    print_fields(
        {
            "trajectories": len(report.reach.trajectories),
            "without trajectory": report.alone,
            "under legal hold": report.held,
            "raw segments": raw.segments,
            **{f"rows in {table}": count for table, count in report.rows.items()},
        },
        as_json=as_json,
    )
