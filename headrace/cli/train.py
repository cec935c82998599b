"""``headrace train``: plan, run, look at, promote and roll back."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.app.context import AppContext
from headrace.app.output import (
    console,
    jsonable,
    note,
    print_fields,
    print_json,
    print_rows,
    progress,
)
from headrace.cli.common import JsonOption, interruptible
from headrace.cli.requests import promote_version
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from train.registry.versions import ModelRegistry
    from train.runs.run import RunResult

app = typer.Typer(help="Fine-tuning runs and the models they make.", no_args_is_help=True)

SubstrateOption = Annotated[
    str | None, typer.Option("--substrate", help="name or name@version; by default the latest.")
]
_CURVES = ("loss", "reward", "rewards/margins", "kl")
"""What `train show` draws of what a trainer logs; pairs have margins where attempts have rewards."""
ModelOption = Annotated[
    str | None, typer.Option("--model", help="Name in the registry; by default train.model.")
]


@app.command()
def plan(
    context: typer.Context,
    substrate: SubstrateOption = None,
    recipe: Annotated[
        list[Path] | None,
        typer.Option(help="Own document to plan with instead of the shipped one; repeatable."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Plan for this model; by default what any model learned counts."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the usable items of each recipe, why others are dropped, the cost, and the pick."""
    from headrace.services.substrates import find_manifest
    from train.recipes.settings import load_recipe
    from train.runs.plan import plan_training

    running = AppContext.of(context)
    own = [load_recipe(path) for path in recipe or ()]
    result = plan_training(
        running.lake, find_manifest(running, substrate), recipes=own, model=model
    )
    if as_json:
        print_json(jsonable(result))
        return
    print_rows([jsonable(line) for line in result.recipes], as_json=False)
    note(f"pick: {result.pick or 'none'} ({result.reason})")


@app.command()
def run(
    context: typer.Context,
    recipe: Annotated[
        Path, typer.Argument(help="YAML document of kind Recipe, or a shipped name.")
    ],
    substrate: SubstrateOption = None,
    model: ModelOption = None,
    base: Annotated[
        Path | None, typer.Option(help="Model folder to start from; by default the live version.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            help="Go on with this interrupted run, its substrate and its base; `last`: with the "
            "newest that began with the same recipe, substrate and base, else begin one."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train a candidate, evaluate it beside its base, judge it, and register it.

    Exit code 1 when the gate refused the candidate.
    """
    from headrace.services.progress_store import TRAINING, recorded
    from headrace.services.substrates import find_manifest
    from train.recipes.settings import load_or_shipped
    from train.runs.order import LAST, RunOrder
    from train.runs.run import RunFolders, run_training

    running = AppContext.of(context)
    home = running.home.create()
    name = _model_name(running, model)
    models = registry(running)
    if resume not in (None, LAST):
        begun = RunOrder.read(home.runs, resume)
        substrate, base = substrate or begun.substrate, base or Path(begun.base)
    start = base or _base(running, models, name)
    document = load_or_shipped(str(recipe))
    with (
        interruptible(),
        progress("training", quiet=as_json) as shown,
        recorded(running, TRAINING, name, shown) as advance,
    ):
        result = run_training(
            running.lake,
            recipe=document,
            substrate=find_manifest(running, substrate),
            base=start,
            name=name,
            places=RunFolders(home.runs, models),
            resume=resume,
            progress=advance,
        )
    _print_result(result, as_json=as_json)
    if not result.verdict.passed:
        raise typer.Exit(1)


@app.command()
def join(
    context: typer.Context,
    rank: Annotated[
        int, typer.Option(help="Number of this machine; the machine that starts the run is 0.")
    ],
    wait_seconds: Annotated[
        float, typer.Option(help="Seconds to wait for a run on several machines.")
    ] = 600,
) -> None:
    """Lend this machine to a run with `launch.machines` that was started on another one."""
    from train.runs.launch import join as lend

    with interruptible():
        typer.echo(lend(AppContext.of(context).home.create().runs, rank, seconds=wait_seconds))


def _print_result(result: "RunResult", *, as_json: bool) -> None:
    if as_json:
        print_json(_summary(result))
        return
    print_fields(_summary(result), as_json=False)
    findings = [jsonable(finding) for finding in result.verdict.findings]
    print_rows(findings, as_json=False, title="gate")
    if result.verdict.passed and result.manifest["makes"] == "policy":
        note(f"next: headrace train promote {result.model.name} {result.model.version}")


def _summary(result: "RunResult") -> dict[str, Any]:
    comparison = result.comparison
    return {
        "run_id": result.run_id,
        "folder": str(result.folder),
        "recipe": result.manifest["recipe"]["spec"]["recipe"],
        "base": result.manifest["base"],
        "model": result.model.label,
        "version": result.model.version,
        "passed": result.verdict.passed,
        "failed_rules": [finding.rule for finding in result.verdict.failed],
        "rows": len(result.fit.rows),
        "steps": result.fit.steps,
        "seconds": round(result.fit.seconds, 1),
        "tokens": result.fit.tokens,
        "final_loss": result.fit.final_loss,
        "comparison": jsonable(comparison) if comparison else None,
        "replay": result.manifest["replay"],
        "agreement": jsonable(result.agreement) if result.agreement else None,
        "wins": result.manifest["wins"],
        "regression": result.manifest["regression"],
        "divergence": result.manifest["divergence"],
    }


@app.command("list")
def list_models(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the registered models, oldest version first."""
    models = registry(AppContext.of(context))
    rows = [
        {
            "model": version.name,
            "version": version.version,
            "status": version.status,
            "run": version.manifest.get("run_id"),
            "registered": version.manifest.get("registered_at"),
        }
        for name in models.names()
        for version in models.versions(name)
    ]
    print_rows(rows, as_json=as_json, empty="no models yet: `headrace train run RECIPE`")


@app.command()
def show(
    context: typer.Context,
    run_id: Annotated[
        str, typer.Argument(help="Id of the run, as `headrace train run` printed it.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Show a run: its manifest and its curves."""
    from train.runs.curves import curve, draw, read_metrics
    from trajectory.files import read_object

    running = AppContext.of(context)
    folder = running.home.runs / run_id
    if not (folder / "manifest.json").is_file():
        known = ", ".join(sorted(path.name for path in running.home.runs.glob("*"))) or "none"
        raise ConfigurationError(f"no run {run_id!r}; there are: {known}.")
    manifest = read_object(folder / "manifest.json", "restore it")
    metrics = read_metrics(folder / "metrics.jsonl")
    if as_json:
        print_json({"manifest": manifest, "metrics": metrics})
        return
    print_fields(
        {name: value for name, value in manifest.items() if not isinstance(value, list)},
        as_json=False,
    )
    for name in _CURVES:
        points = [value for _, value in curve(metrics, name)]
        if points:
            console().print(f"{name:>15}  {draw(points)}  {points[0]:.4g} → {points[-1]:.4g}")


@app.command()
def adopt(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="Model folder (safetensors and tokenizer).")],
    model: ModelOption = None,
) -> None:
    """Register a model as the first version of a name, and let it serve.

    A version that was trained here must have passed its gate, and its data must still be permitted.
    """
    from train.model_folder import require_loadable

    running = AppContext.of(context)
    require_loadable(folder)
    adopted = registry(running).adopt(
        _model_name(running, model), folder, actor=running.user.name, reason="adopted"
    )
    typer.echo(f"{adopted.label} serves")


@app.command()
def promote(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="Name in the registry.")],
    version: Annotated[str, typer.Argument(help="Version, as `headrace train list` shows it.")],
    override: Annotated[
        str | None,
        typer.Option(help="Reason to promote a version that did not pass its gate; audited."),
    ] = None,
    serving: Annotated[
        str | None,
        typer.Option(
            help="Version that it takes over from, empty for none; refused where another one serves."
        ),
    ] = None,
) -> None:
    """Make a version live; refused if it did not pass its gate."""
    promote_version(AppContext.of(context), "model", model, version, override, serving)


@app.command()
def rollback(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="Name in the registry.")],
    version: Annotated[
        str | None,
        typer.Argument(
            help="Version to take back, refused where it serves no more; else whichever serves."
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="Reason; audited.")] = "rollback",
) -> None:
    """Make an earlier version live; skips versions that learned from withdrawn data."""
    models = registry(AppContext.of(context))
    actor = AppContext.of(context).user.name
    back = models.rollback(model, actor=actor, reason=reason, serving=version)
    typer.echo(f"{back.label} serves ({models.history(model)[-1].reason})")


def registry(running: AppContext) -> "ModelRegistry":
    """Return the model registry, whose changes are made in the name of who runs this."""
    from headrace.services.changes import model_registry

    return model_registry(running, running.user.name)


def _model_name(running: AppContext, given: str | None) -> str:
    name = given or running.settings.train.model
    if not name:
        raise ConfigurationError("give --model NAME, or set train.model (HEADRACE_TRAIN_MODEL).")
    return name


def _base(running: AppContext, models: "ModelRegistry", name: str) -> Path:
    live = models.live(name)
    if live is not None:
        return live.path
    if running.settings.train.base_model:
        return Path(running.settings.train.base_model)
    raise ConfigurationError(
        f"no version of {name!r} serves yet: give --base FOLDER, or `headrace train adopt FOLDER`."
    )
