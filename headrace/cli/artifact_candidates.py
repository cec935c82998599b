"""``headrace artifact propose|optimize|examine``: candidates, and whether they are better."""

from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.app.context import AppContext
from headrace.app.output import note, print_fields, print_json, print_rows, printable, progress
from headrace.cli.artifact import LabelArgument, NameArgument
from headrace.cli.common import JsonOption, interruptible
from headrace.services.artifacts import exam_fields, find_artifact
from headrace.services.changes import artifact_registry
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from evolve.proposers.catalog import ProposalRequest
    from headrace.services.optimizer import Optimized
    from trajectory.artifact import Artifact, ArtifactSurface


class ProposedKind(StrEnum):
    """What is drawn."""

    MEMORY = "memory"
    SKILL = "skill"
    HARNESS = "harness"
    TOOLS = "tools"


PolicyOption = Annotated[
    Path | None,
    typer.Option(
        help="Document of kind Evolution whose promotion.ladder.exam holds; by default the shipped one.",
        dir_okay=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (propose, optimize, examine):
        app.command()(command)


def propose(
    context: typer.Context,
    decision: Annotated[
        str | None,
        typer.Argument(help="Decision of `headrace evolve` that asks for it, or its beginning."),
    ] = None,
    kind: Annotated[
        list[ProposedKind] | None, typer.Option(help="Repeat; by default what the decision says.")
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(
            help="Whose sessions; of a decision about all tenants, by default each one's; else needed where "
            "the lake has several."
        ),
    ] = None,
    tool: Annotated[str | None, typer.Option(help="Only what concerns this tool.")] = None,
    proposer: Annotated[str | None, typer.Option(help="Only this one.")] = None,
    people: Annotated[
        int, typer.Option(min=1, help="Different people in whose sessions it must show.")
    ] = 2,
    sessions: Annotated[int, typer.Option(min=1, max=100_000, help="Newest sessions read.")] = 1000,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Write documents into it.", file_okay=False)
    ] = None,
    add: Annotated[
        bool, typer.Option("--add", help="Register what passes its inspection.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Draw candidates from eligible steps that allow the purpose evolve: facts, procedures, patches.

    Facts come from corrections in sessions that ended well. Patches of tools come from validation errors
    that a later call avoided. Procedures come from orders of calls that end better than others.
    """
    from evolve.proposers.catalog import propose as draw

    running = AppContext.of(context)
    requests = [
        replace(one, proposer=proposer, sessions=sessions)
        for one in _requests(running, decision, kind, tenant, tool, people)
    ]
    artifacts = artifact_registry(running, running.user.name)
    rows = []
    drawn = [document for one in requests for document in draw(running.lake, one)]
    for document in drawn:
        found = artifacts.inspect(document)
        name = document.metadata.name
        running.note_reading(name, "artifact propose")
        row = {
            "artifact": name,
            "proposer": document.spec.proposer,
            "evidence": len(document.spec.all_evidence),
            "objections": ", ".join(sorted({one.rule for one in found})),
        }
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            _write(document, folder / f"{name}.yaml")
            row["file"] = str(folder / f"{name}.yaml")
        if add and not found:
            row["artifact"] = artifacts.register(document, actor=running.user.name).label
        rows.append({**row, "document": _value(document)} if as_json else row)
        if folder is None and not add and not as_json:
            typer.echo(f"---\n{printable(_yaml(document))}", nl=False)
    if as_json or folder is not None or add or not rows:
        print_rows(rows, as_json=as_json, empty="nothing to propose from what was seen")


def _requests(
    running: AppContext,
    decision: str | None,
    kinds: list[ProposedKind] | None,
    tenant: str | None,
    tool: str | None,
    people: int,
) -> "list[ProposalRequest]":
    """Return what is asked: a decision names surface and cause, options come before it.

    A decision that names no tenant is about all of them, and an artefact is one tenant's.
    """
    from evolve.proposers.catalog import SURFACES_DECIDED, ProposalRequest
    from evolve.proposers.proposer import ProposalBounds

    surfaces: list[ArtifactSurface] = [one.value for one in kinds or ()]
    decision_id = None
    if decision is not None:
        from headrace.services.changes import decision_book

        decided = decision_book(running, running.user.name).get(decision).decision
        decision_id = decided.decision_id
        if not surfaces and decided.surface not in SURFACES_DECIDED:
            raise ConfigurationError(
                f"decision {decision_id} is for {decided.surface}, which no proposer draws; --kind says "
                "what shall be drawn all the same"
            )
        surfaces = surfaces or [SURFACES_DECIDED[decided.surface]]
        dimension, _, value = (decided.subject or "").partition(" ")
        if dimension == "tenant":
            tenant = tenant or value
        elif dimension in ("tool", "error_class", "argument_path"):
            tool = tool or value.partition(": ")[0]
    known = running.lake.query(
        "SELECT DISTINCT tenant_id FROM steps ORDER BY tenant_id"
    ).to_pylist()
    names = [row["tenant_id"] for row in known]
    if tenant is None and len(names) != 1 and (decision is None or not names):
        raise ConfigurationError(
            f"give --tenant, because artefacts are one tenant's; there are: {', '.join(names) or 'none'}"
        )
    return [
        ProposalRequest(
            tenant=one,
            bounds=ProposalBounds(people=people, tool=tool),
            surfaces=surfaces,
            decision=decision_id,
        )
        for one in ([tenant] if tenant else names)
    ]


def optimize(
    context: typer.Context,
    artifact: NameArgument,
    route: Annotated[
        str, typer.Option(help="Route of the running gateway whose model writes new texts.")
    ],
    model: Annotated[str, typer.Option(help="Name of that model, as its provider has it.")],
    policy: PolicyOption = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Document to begin with; by default the live version.",
            dir_okay=False,
            exists=True,
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Client key to use; by default this machine's own.")
    ] = None,
    decision: Annotated[
        str | None, typer.Option(help="Decision of `headrace evolve` that asks for it.")
    ] = None,
    proposals: Annotated[int, typer.Option(min=1, help="Texts that the model is asked for.")] = 20,
    tries: Annotated[
        int, typer.Option(min=1, help="Episodes after which the search ends, about.")
    ] = 1000,
    tasks: Annotated[
        int, typer.Option(min=2, help="Tasks of the train side that are tried at most.")
    ] = 50,
    at_once: Annotated[
        int, typer.Option(min=1, help="Tasks that the model reads of before it writes.")
    ] = 8,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the candidate here, also where it is refused.", dir_okay=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Search for a better text of a harness, skill or tool with GEPA, and register it if it passes.

    The policy's promotion.ladder.exam names who tries the tasks, and of which substrate. The model behind
    the route reads tasks of the train side whose steps allow the purpose evolve. What it finds passes
    inspection and exam (held-out tasks), or is not registered; then this ends with 1.
    """
    from evolve.proposers.optimizer import SearchBudget
    from headrace.app.clients import local_client_key
    from headrace.app.installation import gateway_config
    from headrace.services import optimizer
    from headrace.services.exams import exam_of_ladder
    from proxy.clients.keys import KeyRegistry

    running = AppContext.of(context)
    keys = gateway_config(running.settings, running.home.create()).keys
    given = key or local_client_key(running.home, KeyRegistry.load(keys))
    with interruptible(), progress("searching", quiet=as_json) as advance:
        found = optimizer.optimize(
            running,
            optimizer.seed_of(running, artifact, file),
            optimizer.ReflectionRoute(route, model, given),
            exam_of_ladder(policy),
            SearchBudget(proposals, tries, at_once),
            tasks=tasks,
            decision=_decision(running, decision),
            progress=lambda _stage, done, total: advance(done, total),
        )
    if found.document is not None and out is not None:
        running.note_reading(artifact, "artifact optimize")
        _write(found.document, out)
    if as_json:
        print_json(_optimized(found))
    else:
        _show_optimized(found)
    if found.registered is None:
        raise typer.Exit(1)


def _optimized(found: "Optimized") -> dict[str, Any]:
    search = found.search
    return {
        "outcome": found.outcome,
        "artifact": found.registered and found.registered.label,
        "tasks": search.tasks,
        "proposals": search.proposals,
        "tries": search.tries,
        "solved_before": search.before,
        "solved_after": search.after,
        "objections": [
            {"rule": one.rule, "where": one.where, "what": one.what} for one in found.objections
        ],
        "exam": found.exam and asdict(found.exam),
    }


def _show_optimized(found: "Optimized") -> None:
    search = found.search
    fields = {
        "outcome": found.outcome,
        "artifact": None if found.registered is None else found.registered.label,
        "tasks it was chosen by": search.tasks,
        "solved of them": f"{search.before:.1%} before, {search.after:.1%} with it",
        "texts written": search.proposals,
        "episodes": search.tries,
    }
    print_fields(fields, as_json=False)
    rows = [{"rule": one.rule, "where": one.where, "what": one.what} for one in found.objections]
    print_rows(rows, as_json=False, title="inspection", empty="")
    if found.exam is not None:
        print_fields(exam_fields(found.exam), as_json=False, title="exam")
    if found.registered is not None:
        name, version = found.registered.name, found.registered.version
        note(f"next: headrace trial begin {name} {version}, or headrace artifact promote")


def _write(document: "Artifact", path: Path) -> None:
    from trajectory.files import READABLE, replace_file

    replace_file(path, _yaml(document).encode(), READABLE)


def _yaml(document: "Artifact") -> str:
    import yaml

    return str(yaml.safe_dump(_value(document), sort_keys=False, allow_unicode=True, width=100))


def _value(document: "Artifact") -> dict[str, Any]:
    value: dict[str, Any] = document.model_dump(mode="json", by_alias=True, exclude_none=True)
    return value


def _decision(running: AppContext, asked: str | None) -> str | None:
    """Return the whole id of a decision."""
    from headrace.services.changes import decision_book

    if asked is None:
        return None
    return decision_book(running, running.user.name).get(asked).decision.decision_id


def examine(
    context: typer.Context,
    artifact: LabelArgument,
    policy: PolicyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a model try held-out tasks without a version and with it, and judge by the gate's interval.

    The model is asked as a gateway would ask it, and tools answer as they were recorded. Ends with 1
    where the version does not pass. `headrace trial begin` gives the same exam before the first rung.
    """
    from headrace.services.exams import exam_of_ladder, examine_content

    running = AppContext.of(context)
    artifacts = artifact_registry(running, running.user.name)
    one = find_artifact(artifacts, artifact)
    if one.content is None:
        raise ConfigurationError(f"{one.label} holds nothing any more: an erasure took it")
    live = artifacts.live(one.name)
    control = "" if live is None or live.version == one.version else live.version
    with interruptible(), progress("trying held-out tasks", quiet=as_json) as advance:
        found = examine_content(
            running, one.name, one.content, control=control, exam=exam_of_ladder(policy),
            progress=lambda _stage, done, total: advance(done, total),
        )  # fmt: skip
    if as_json:
        print_json(asdict(found))
    else:
        print_fields(exam_fields(found), as_json=False)
    if not found.passed:
        raise typer.Exit(1)
