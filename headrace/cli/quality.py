"""``headrace quality``: how good what was stored is, and whether it drifts."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.app.context import AppContext
from headrace.app.output import jsonable, note, print_json, print_rows
from headrace.cli.common import JsonOption, days_until, nothing_stored

if TYPE_CHECKING:
    from governance.policy.quality import Column, ExpectationOf
    from governance.quality.data_docs import DocumentedSuite
    from governance.quality.drift import ColumnDrift
    from governance.quality.facts import StepFacts
    from governance.quality.suite import ExpectationResult

app = typer.Typer(help="Quality of stored rows.", no_args_is_help=True)

DataDocsOption = Annotated[
    Path | None,
    typer.Option(help="Write Great Expectations' Data Docs of both suites into this folder."),
]


@app.command()
def report(
    context: typer.Context,
    day: Annotated[
        str | None, typer.Option(help="UTC day, YYYY-MM-DD; by default yesterday.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="Number of days that end with this day.")] = 1,
    reference_days: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of days before them to compare with; by default the policy's drift.reference_days, else 14.",
        ),
    ] = None,
    drift_from: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Population stability index from which drift counts; by default the policy's drift.most, else 0.25.",
        ),
    ] = None,
    data_docs: DataDocsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check stored steps by the Quality policy and against a reference window. Exit 1 on findings."""
    from governance.policy import load_bundle
    from governance.policy.quality import Drift
    from governance.quality.drift import drift, drifted
    from governance.quality.suite import Suite, asking
    from governance.trial.dry_run import STORED
    from headrace.services.dry_run import quarantine_reasons, stored_facts

    running = AppContext.of(context)
    since, until = days_until(day, days)
    steps = stored_facts(running.lake.query, since, until)
    policy = load_bundle(running.settings.policy.folder).quality.spec
    limits = policy.drift or Drift()
    before = timedelta(days=reference_days or limits.reference_days)
    reference = stored_facts(running.lake.query, since - before, since)
    expectations = asking(policy.expectations, STORED)
    results = Suite(expectations).results(steps)
    drifts = drift(steps, reference, limits.columns)
    most = limits.most if drift_from is None else drift_from
    quarantine = quarantine_reasons(running.lake.query, since, until)
    if data_docs is not None:
        _write_step_docs(data_docs, expectations, steps, drifts, most)
    if as_json:
        print_json(
            {
                "steps": len(steps),
                "reference_steps": len(reference),
                "expectations": jsonable(results),
                "quarantine": dict(quarantine),
                "drift": jsonable(drifts),
            }
        )
    else:
        _print(results, drifts)
        _print_quarantine(quarantine, len(steps))
        if not steps:
            note(nothing_stored(until))
    if drifted(drifts, most) or any(one.failed for one in results):
        raise typer.Exit(1)


def _write_step_docs(
    folder: Path,
    expectations: "Sequence[ExpectationOf[Column]]",
    steps: "Sequence[StepFacts]",
    drifts: "Sequence[ColumnDrift]",
    drift_from: float,
) -> None:
    from governance.quality.data_docs import DocumentedSuite
    from governance.quality.facts import StepFacts

    suite = DocumentedSuite("headrace-steps", expectations, StepFacts, steps)
    _write(folder, suite, drifts, drift_from)


def _print_quarantine(reasons: Sequence[tuple[str, int]], steps: int) -> None:
    rows = [{"reason": reason, "exchanges": count} for reason, count in reasons]
    print_rows(rows, as_json=False, title="held back", empty="")
    note(f"{steps} steps, {sum(count for _, count in reasons)} exchanges held back")


@app.command("substrate")
def substrate_report(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="Name, or name@version; by default the latest.")
    ] = None,
    data_docs: DataDocsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge a built substrate by the Quality policy in force. Exit 1 when it would be refused."""
    from governance.policy import load_bundle
    from governance.quality.data_docs import DocumentedSuite
    from headrace.services.substrates import find_manifest, gate_of
    from train.substrate.manifest import load_items
    from train.substrate.quality import ItemFacts

    running = AppContext.of(context)
    manifest = find_manifest(running, name)
    bundle = load_bundle(running.settings.policy.folder)
    policy = bundle.quality.spec.substrate
    entries, gate = load_items(manifest), gate_of(running)
    report = gate.judge(running.lake, entries)
    if data_docs is not None:
        facts = gate.facts(running.lake, entries)
        items = DocumentedSuite("headrace-substrate", policy.expectations, ItemFacts, facts)
        _write(data_docs, items, report.drifts, policy.drift.most if policy.drift else 0.25)
    if as_json:
        print_json(jsonable(report) | {"substrate": f"{manifest.name}@{manifest.version}"})
    else:
        _print(report.expectations, report.drifts)
        note(f"{report.items} items; refused: {', '.join(report.reasons) or 'no'}")
    if report.reasons:
        raise typer.Exit(1)


def _write(
    folder: Path,
    suite: "DocumentedSuite[Any, Any]",
    drifts: "Sequence[ColumnDrift]",
    drift_from: float,
) -> None:
    from governance.quality.data_docs import DocumentedSuite, write_data_docs
    from governance.quality.drift import ColumnDrift, drift_expectations

    drift = DocumentedSuite(
        "headrace-drift", drift_expectations(drifts, drift_from), ColumnDrift, drifts
    )
    write_data_docs(folder, [suite, drift])


def _print(found: "Sequence[ExpectationResult]", drifts: "Sequence[ColumnDrift]") -> None:
    print_rows([jsonable(one) for one in found], as_json=False, title="expectations")
    print_rows([jsonable(one) for one in drifts], as_json=False, title="drift")
