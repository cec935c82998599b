"""``headrace substrate``: named, versioned selections of what may be learned from."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import jsonable, print_fields, print_json, print_rows, progress
from headrace.cli.common import EngineOption, JsonOption

if TYPE_CHECKING:
    from train.substrate.manifest import SubstrateManifest

app = typer.Typer(
    help="Substrates: versioned selections of items to learn from.", no_args_is_help=True
)


@app.command()
def build(
    context: typer.Context,
    document: Annotated[Path, typer.Argument(help="YAML document of kind Substrate.")],
    engine: EngineOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build a substrate; the same lake and document give the same bytes."""
    from headrace.engine import engine_of, open_engine
    from headrace.engine.redaction import walker_of
    from headrace.services.progress_store import SUBSTRATE, recorded
    from headrace.services.substrates import gate_of
    from train.substrate.build import build_substrate
    from train.substrate.spec import load_substrate

    running = AppContext.of(context)
    spec = load_substrate(document)
    settings, home = running.settings, running.home.create()
    with (
        _noted(running),
        open_engine(engine_of(settings, engine), settings, home, running.secrets) as opened,
        progress("building", quiet=as_json) as shown,
        recorded(running, SUBSTRATE, spec.metadata.name, shown) as advance,
    ):
        manifest = build_substrate(
            running.lake,
            spec,
            out=home.substrates,
            progress=advance,
            walker=walker_of(opened, running.lake),
            base=document.parent,
            gate=gate_of(running),
        )
    if as_json:
        print_json(manifest.to_json() | {"path": manifest.path})
    else:
        _print_manifest(manifest)


def _print_manifest(manifest: "SubstrateManifest") -> None:
    print_fields(
        {
            "substrate": f"{manifest.name}@{manifest.version}",
            "items": len(manifest.item_ids),
            **manifest.counts,
            "folder": manifest.path,
        },
        as_json=False,
    )
    fallen = [
        {"what": what, "reason": reason, "count": count}
        for what, reasons in (("step", manifest.left_out_steps), ("item", manifest.left_out_items))
        for reason, count in reasons.items()
    ]
    print_rows(fallen, as_json=False, title="left out", empty="nothing was left out")


@app.command("list")
def list_substrates(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the substrates that were built here, the latest last."""
    from headrace.services.substrates import manifests

    running = AppContext.of(context)
    stale = _marked_stale(running)
    rows = [
        {
            "name": manifest.name,
            "version": manifest.version,
            "items": len(manifest.item_ids),
            "purposes": ", ".join(manifest.spec.purposes),
            "stale": (manifest.name, manifest.version) in stale,
            "folder": str(manifest.path),
        }
        for manifest in manifests(running)
    ]
    print_rows(rows, as_json=as_json, empty="no substrates yet: `headrace substrate build FILE`")


@app.command()
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name, or name@version.")],
    as_json: JsonOption = False,
) -> None:
    """Show one substrate's manifest, and whether it may still be trained on."""
    from headrace.services.substrates import find_manifest
    from train.substrate.manifest import stale_items

    running = AppContext.of(context)
    manifest = find_manifest(running, name)
    stale = stale_items(running.lake, manifest)
    fields = jsonable(manifest.to_json()) | {"stale_items": len(stale)}
    if not as_json:
        fields["item_ids"] = f"{len(manifest.item_ids)} items (see --json)"
    print_fields(fields, as_json=as_json)
    if stale:
        raise typer.Exit(1)


def _marked_stale(running: AppContext) -> set[tuple[str, str]]:
    """Return the substrates that a withdrawal, an erasure or the end of retention has marked."""
    found = running.lake.query("SELECT name, version FROM substrates_latest WHERE stale")
    return {(row["name"], row["version"]) for row in found.to_pylist()}


@contextmanager
def _noted(running: AppContext) -> Iterator[None]:
    """Write a refusal by the quality gate into the audit log."""
    from train.errors import SubstrateRefusedError

    try:
        yield
    except SubstrateRefusedError as error:
        running.audit.append(
            actor=running.user.name,
            action="substrate.refused",
            subject=error.name,
            detail={"reasons": [*error.reasons]},
        )
        raise
