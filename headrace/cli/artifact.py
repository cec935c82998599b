"""``headrace artifact``: facts, procedures, and edits of prompts and tools, version by version."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import print_fields, print_json, print_rows, printable
from headrace.cli.common import JsonOption
from headrace.cli.requests import promote_version
from headrace.services.artifacts import (
    content_of,
    difference_of,
    exam_fields,
    facts_of,
    find_artifact,
    history_of,
    text_of,
)
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from train.registry.artifacts import ArtifactRegistry, ArtifactVersion
    from trajectory.artifact import SkillContent


app = typer.Typer(
    help="Artefacts: facts, procedures, and edits of prompts and tools that routes give to agents.",
    no_args_is_help=True,
)


def _names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of an artefact."""
    running = context.find_root().obj or AppContext(home_option=None, debug=False)
    folder = running.home.artifacts
    found = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return [name for name in found if name.startswith(incomplete)]


_WANTED = "NAME, or NAME@VERSION; without a version the live one, else the newest."
NameArgument = Annotated[
    str,
    typer.Argument(help="Name, as `headrace artifact list` shows it.", autocompletion=_names),
]
LabelArgument = Annotated[str, typer.Argument(help=_WANTED, autocompletion=_names)]
VersionArgument = Annotated[
    str, typer.Argument(help="Version, as `headrace artifact list` shows it.")
]
OverrideOption = Annotated[
    str | None,
    typer.Option(help="Reason to let it pass in spite of what its inspection found; audited."),
]


@app.command()
def add(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(help="YAML document of kind Artifact.", dir_okay=False, exists=True)
    ],
    override: OverrideOption = None,
    as_json: JsonOption = False,
) -> None:
    """Register a document as the next version of its name; it waits until it is promoted.

    One that says what a version says already is that version.
    Each step of its evidence must exist and allow the purpose evolve, and it must pass its inspection
    (`headrace evolve inspect`).
    """
    from trajectory.artifact import Artifact
    from trajectory.documents.document import load_document

    artifacts, document = registry(AppContext.of(context)), load_document(Artifact, file)
    before = {one.version for one in artifacts.versions(document.metadata.name)}
    added = artifacts.register(document, actor=AppContext.of(context).user.name, override=override)
    if as_json:
        print_json(facts_of(added))
        return
    if added.version in before:
        typer.echo(f"{added.label} says the same already ({added.status}); nothing was registered")
        return
    typer.echo(
        f"{added.label} is registered; next: headrace artifact promote {added.name} {added.version}"
    )


@app.command("list")
def list_artifacts(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the registered artefacts, oldest version first."""
    artifacts = registry(AppContext.of(context))
    rows = [
        {
            "artifact": one.name,
            "version": one.version,
            "surface": one.manifest["surface"],
            "tenant": one.manifest["tenant"],
            "status": one.status,
            "proposer": one.manifest["proposer"],
            "decision": one.manifest["decision"],
            "evidence": len(one.evidence),
            "registered": one.manifest["registered_at"],
        }
        for name in artifacts.names()
        for one in artifacts.versions(name)
    ]
    print_rows(rows, as_json=as_json, empty="no artefacts yet: `headrace artifact add FILE`")


@app.command()
def show(context: typer.Context, artifact: LabelArgument, as_json: JsonOption = False) -> None:
    """Show one version: where it comes from, its newest exam, what became of it, and what it says."""
    running = AppContext.of(context)
    artifacts = registry(running)
    one = find_artifact(artifacts, artifact)
    running.note_reading(one.label, "artifact show")
    history = history_of(artifacts, one)
    if as_json:
        print_json({**facts_of(one), "history": history, "content": content_of(one)})
        return
    shown = {name: value for name, value in facts_of(one).items() if name != "exam"}
    print_fields(shown, as_json=False)
    if one.exam is not None:
        print_fields(exam_fields(one.exam), as_json=False, title="exam")
    if history:
        print_rows(history, as_json=False, title="history")
    typer.echo(f"\n{printable(text_of(one))}")


@app.command()
def diff(
    context: typer.Context, old: LabelArgument, new: LabelArgument, as_json: JsonOption = False
) -> None:
    """Show what differs between two versions."""
    running = AppContext.of(context)
    artifacts = registry(running)
    before, after = find_artifact(artifacts, old), find_artifact(artifacts, new)
    running.note_reading(f"{before.label} {after.label}", "artifact diff")
    changes = difference_of(before, after)
    if as_json:
        removed, added = (
            [line[1:] for line in changes[2:] if line.startswith(sign)] for sign in "-+"
        )
        print_json({"old": before.label, "new": after.label, "removed": removed, "added": added})
        return
    for line in changes or ["no difference"]:
        typer.echo(printable(line))


@app.command()
def promote(
    context: typer.Context,
    artifact: NameArgument,
    version: VersionArgument,
    override: OverrideOption = None,
) -> None:
    """Make a version live; refused where it does not pass its inspection, or its evidence is withdrawn.

    A reason overrides the inspection; nothing overrides the withdrawal of evidence.
    """
    promote_version(AppContext.of(context), "artifact", artifact, version, override)


@app.command()
def rollback(
    context: typer.Context,
    artifact: NameArgument,
    version: Annotated[
        str | None,
        typer.Argument(
            help="Version to take back, refused where it serves no more; else whichever serves."
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="Reason; audited.")] = "rollback",
) -> None:
    """Make an earlier version live; skips versions that were drawn from withdrawn data."""
    artifacts = registry(AppContext.of(context))
    actor = AppContext.of(context).user.name
    back = artifacts.rollback(artifact, actor=actor, reason=reason, serving=version)
    typer.echo(f"{back.label} is live ({artifacts.history(artifact)[-1].reason})")


@app.command("try")
def try_out(
    context: typer.Context,
    artifact: NameArgument,
    version: VersionArgument,
    override: OverrideOption = None,
) -> None:
    """Give a version to the routes' share of sessions (evolve.canary), beside the live one.

    Refused where it does not pass its inspection.
    """
    tried = registry(AppContext.of(context)).try_out(
        artifact, version, "canary", actor=AppContext.of(context).user.name, override=override
    )
    typer.echo(f"{tried.label} is on trial as canary")


@app.command("end-trial")
def end_trial(
    context: typer.Context,
    artifact: NameArgument,
    reason: Annotated[str, typer.Option(help="Reason; audited.")] = "trial ended",
) -> None:
    """End the trial of a version; the live version goes on."""
    tried = registry(AppContext.of(context)).end_trial(
        artifact, "canary", actor=AppContext.of(context).user.name, reason=reason
    )
    typer.echo(f"{tried} is no longer on trial")


@app.command()
def export(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="Folder to write into.", file_okay=False)],
    artifacts: Annotated[
        list[str] | None,
        typer.Argument(help="Names; by default every skill that is live.", autocompletion=_names),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write live skills as folders with a SKILL.md, for agents that read them from disk."""
    from trajectory.files import READABLE, replace_file

    running = AppContext.of(context)
    known = registry(running)
    rows = []
    for name in artifacts or known.names():
        live = known.live(name) if name in known.names() else None
        content = None if live is None else live.content
        if live is None or content is None or content.skill is None:
            if artifacts:
                raise ConfigurationError(f"{name!r} is no live skill (`headrace artifact list`)")
            continue
        running.note_reading(live.label, "artifact export")
        home = folder / name
        home.mkdir(parents=True, exist_ok=True)
        replace_file(home / "SKILL.md", _skill_text(live, content.skill).encode(), READABLE)
        rows.append({"skill": live.label, "file": str(home / "SKILL.md")})
    print_rows(rows, as_json=as_json, empty="no skill is live: `headrace artifact list`")


def _skill_text(one: "ArtifactVersion", skill: "SkillContent") -> str:
    """Return a SKILL.md: what the skill is for and when it fits, and the procedure."""
    import yaml

    about = one.manifest["description"] or skill.title
    head = {
        "name": one.name,
        "description": f"{about} Use when: {', '.join(skill.trigger.phrases)}."[:1024],
        "license": one.manifest["licence"],
        "metadata": {"headrace": one.label},
    }
    front = yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=10_000)
    return f"---\n{front}---\n\n# {skill.title}\n\n{skill.procedure.rstrip()}\n"


def registry(running: AppContext) -> "ArtifactRegistry":
    """Return the registry of artefacts, whose changes are made in the name of who runs this."""
    from headrace.services.changes import artifact_registry

    return artifact_registry(running, running.user.name)
