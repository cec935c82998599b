"""``headrace credit``: which decision of an attempt deserves how much of its reward."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import note, print_fields, print_rows
from headrace.cli.common import JsonOption
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from lakehouse.rewards import RewardWeights

app = typer.Typer(
    help="Step-level credit for training, computed from rewards.", no_args_is_help=True
)


@app.command()
def compute(
    context: typer.Context,
    algorithm: Annotated[
        str, typer.Argument(help="Algorithm; `headrace credit algorithms` lists them.")
    ],
    substrate: Annotated[
        str | None,
        typer.Option(
            help="Substrate (name or name@version): its weights, and only its trajectories."
        ),
    ] = None,
    signal: Annotated[
        list[str] | None,
        typer.Option(help="Without a substrate: name=weight of a signal; may be repeated."),
    ] = None,
    combine: Annotated[
        str, typer.Option(help="With --signal: last, mean, minimum or sum of several of one name.")
    ] = "last",
    missing: Annotated[
        str,
        typer.Option(
            help="With --signal: what to do with a trajectory that lacks a signal: leave_out, or zero."
        ),
    ] = "leave_out",
    gate: Annotated[
        str | None,
        typer.Option(
            help="With --signal: name=value of the outcome that must be reached for signals about "
            "steps to count, like success=0.5."
        ),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(help="name=value of a parameter of the algorithm; may be repeated."),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's trajectories.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the credit of every decision and append it to the table credits."""
    from lakehouse.credit.algorithms import algorithm_named
    from lakehouse.credit.compute import Scope, compute_credits

    running = AppContext.of(context)
    chosen = algorithm_named(algorithm)
    given = dict(_pair(text, "--parameter") for text in parameter or ())
    if (substrate is None) == (not signal):
        raise ConfigurationError("give --substrate, or the weights with --signal name=weight.")
    if signal:
        weights, scope = _weights(signal, combine, missing, gate), Scope(tenant=tenant)
    else:
        from headrace.services.substrates import find_manifest

        manifest = find_manifest(running, substrate)
        weights = manifest.spec.reward.weights
        scope = Scope(tenant=tenant, substrate=manifest.name, version=manifest.version)
    report = compute_credits(running.lake, chosen, given, weights, scope)
    print_fields(asdict(report), as_json=as_json)
    if report.trajectories == 0:
        note(
            f"no trajectory has a reward by {', '.join(sorted(weights.signals))}; the names that "
            "there are stand in the view rewards_latest."
        )


@app.command()
def judge(
    context: typer.Context,
    function: Annotated[
        str,
        typer.Argument(help="The judge: a plugin (headrace.rewards) or package.module:name."),
    ],
    substrate: Annotated[
        str | None, typer.Option(help="Whose steps (name or name@version); by default the latest.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the signal.")] = "step_quality",
    tenant: Annotated[
        str | None, typer.Option(help="Only this tenant's steps; needed where there are several.")
    ] = None,
) -> None:
    """Score each step of a substrate; print JSON lines for `headrace feedback --file`.

    The judge gets what the step was shown and what came of it, as a reward function does. It returns a number, or
    None if it cannot tell.
    """
    from collections import Counter

    from headrace.services.substrates import find_manifest
    from train.rewards import load_reward
    from train.step_judge import judge_steps
    from train.substrate.content import ContentStore
    from train.substrate.manifest import load_items, require_fresh

    running = AppContext.of(context)
    scorer = load_reward(function, setting="judge")
    manifest = find_manifest(running, substrate)
    require_fresh(running.lake, manifest)
    items = [one for one in load_items(manifest) if tenant in (None, one.item.tenant_id)]
    tenants = sorted({one.item.tenant_id for one in items})
    if len(tenants) > 1:
        raise ConfigurationError(
            f"{manifest.name} has steps of {', '.join(tenants)}: give --tenant, because feedback is "
            "sent with the key of one tenant."
        )
    content = ContentStore.read(running.lake, [one.item for one in items])
    left_out: Counter[str] = Counter()
    verdicts = 0
    for verdict in judge_steps(content, items, scorer, function, left_out):
        typer.echo(json.dumps(verdict.feedback(name=name, judge=function)))
        verdicts += 1
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(left_out.items()))
    note(f"{verdicts} verdicts{f'; without one: {reasons}' if reasons else ''}")


@app.command("list")
def list_credits(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the computations in the table credits, the latest last."""
    found = AppContext.of(context).lake.query(
        "SELECT computation_id, any_value(recorded_at) AS recorded_at, any_value(algorithm) AS "
        "algorithm, any_value(parameters) AS parameters, any_value(substrate) AS substrate, "
        "any_value(weights_hash) AS weights_hash, count(DISTINCT trajectory_id) AS trajectories, "
        "count(*) AS steps FROM credits GROUP BY computation_id ORDER BY recorded_at"
    )
    print_rows(
        found.to_pylist(),
        as_json=as_json,
        empty="no credits yet: `headrace credit compute ALGORITHM`",
    )


@app.command()
def algorithms(as_json: JsonOption = False) -> None:
    """List the algorithms, their parameters and the papers they follow."""
    from lakehouse.credit.algorithms import ALGORITHMS

    rows = [
        {
            "algorithm": one.name,
            "version": one.version,
            "parameters": json.dumps({p.name: p.default for p in one.parameters}),
            "what": one.comment,
            "source": one.source,
        }
        for one in ALGORITHMS.values()
    ]
    print_rows(rows, as_json=as_json)


def _weights(
    signals: Sequence[str], combine: str, missing: str, gate: str | None
) -> "RewardWeights":
    """Return the weights that the options of a computation without a substrate give."""
    from lakehouse.rewards import RewardWeights

    if combine not in ("last", "mean", "minimum", "sum"):
        raise ConfigurationError(f"--combine {combine!r} is not one of last, mean, minimum, sum.")
    if missing not in ("leave_out", "zero"):
        raise ConfigurationError(f"--missing {missing!r} is not one of leave_out, zero.")
    weights = RewardWeights(dict(map(_weight, signals)), combine, missing)
    if gate is None:
        return weights
    outcome, least = _weight(gate, "--gate")
    return replace(weights, gate=outcome, gate_at_least=least)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ConfigurationError(f"{option} {text!r} is not name=value.")
    return name, value


def _weight(text: str, option: str = "--signal") -> tuple[str, float]:
    name, value = _pair(text, option)
    try:
        return name, float(value)
    except ValueError:
        raise ConfigurationError(f"{option} {text!r}: {value!r} is no number.") from None
