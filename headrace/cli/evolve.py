"""``headrace evolve``: what should change, from what was seen, and what came of it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.app.context import AppContext
from headrace.app.output import note, print_fields, print_json, print_rows
from headrace.cli.common import JsonOption
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from evolve.decisions import DecisionBook
    from evolve.plan import EvolutionDecision
    from evolve.policy import Evolution
    from trajectory.artifact import ArtifactSpec

_YEARS = range(1970, 3000)
"""Years in which a night can lie."""

app = typer.Typer(
    help="Decide from what agents did whether memory, skill, harness, tool schema, weights or nothing "
    "should change.",
    no_args_is_help=True,
)

FileArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]", help="YAML document of kind Evolution; without one the shipped policy."
    ),
]
DecisionArgument = Annotated[
    str,
    typer.Argument(help="Id of a decision, or the beginning of it (`headrace evolve history`)."),
]
ReasonOption = Annotated[str | None, typer.Option(help="Why; kept with the decision.")]


@app.command()
def plan(
    context: typer.Context,
    file: FileArgument = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            help="Look at the nights before this day (2026-05-31); or a decision's id: read the table "
            "versions that it read. Default: the day of the newest step, which is left out."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a policy would decide now; nothing is recorded.

    The same policy and the same table versions give the same bytes.
    """
    from evolve import evidence

    running = AppContext.of(context)
    earlier, moment = _as_of(running, as_of)
    if earlier is not None:
        policy = earlier.policy if file is None else _policy(file)
        end = datetime.fromisoformat(str(earlier.decision.document["as_of"]))
        decided = evidence.plan(running.lake, policy, as_of=end, versions=earlier.versions)
    else:
        decided = evidence.plan(running.lake, _policy(file), as_of=moment)
    _show(decided, as_json=as_json)


@app.command()
def run(
    context: typer.Context,
    file: FileArgument = None,
    as_of: Annotated[
        str | None, typer.Option(help="Look at the nights before this day (2026-05-31).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Score what is due, decide, and record the decision; a proposal then waits for a person.

    A night that was decided is not decided again: its decision is shown.
    """
    running = AppContext.of(context)
    recorded = decision_book(running).run(_policy(file), _day(as_of))
    _show(recorded.decision, as_json=as_json)
    if recorded.row["status"] == "proposed":
        note(f"`headrace evolve approve {recorded.decision.decision_id}` or reject it")


@app.command()
def explain(
    context: typer.Context, decision: DecisionArgument, as_json: JsonOption = False
) -> None:
    """Show a decision: what it saw, considered and expects, and what is left of its evidence."""
    running = AppContext.of(context)
    book = decision_book(running)
    recorded = book.get(decision)
    running.note_reading(decision, "evolve explain")
    left = book.evidence_left(recorded)
    state = {
        name: recorded.row[name]
        for name in ("status", "actor", "reason", "recorded_at", "due_at", "measured", "met")
    }
    if as_json:
        document = {"decision": recorded.decision.document, "state": state, "evidence": left}
        print_json(document)
        return
    _show(recorded.decision, as_json=False)
    print_fields(state, as_json=False, title="State")
    rows = [{"trajectory": one, "evidence": "there"} for one in left.present]
    rows += [{"trajectory": one, "evidence": "erased or expired"} for one in left.gone]
    print_rows(rows, as_json=False, title="Examples", empty="")
    messages = [{"form": form, "message": text} for form, text in left.messages.items()]
    print_rows(messages, as_json=False, title="Messages that are there, redacted", empty="")


@app.command()
def history(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the decisions, what became of them, and whether they did what was expected."""
    rows = decision_book(AppContext.of(context)).history()
    columns = (
        "decision_id", "as_of", "policy", "surface", "subject", "status", "metric", "at_least",
        "due_at", "measured", "met",
    )  # fmt: skip
    shown = [{name: row[name] for name in columns} for row in rows]
    print_rows(shown, as_json=as_json, empty="no decision so far: `headrace evolve run` makes one")


@app.command()
def approve(
    context: typer.Context,
    decision: DecisionArgument,
    reason: ReasonOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say that you carry out what a decision proposes; audited.

    Until it is scored no other change is proposed, but for a rollback.
    """
    recorded = decision_book(AppContext.of(context)).approve(decision, reason=reason)
    _show_state(recorded.row, as_json=as_json)


@app.command()
def reject(
    context: typer.Context,
    decision: DecisionArgument,
    reason: ReasonOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say that what a decision proposes is not carried out; audited."""
    recorded = decision_book(AppContext.of(context)).reject(decision, reason=reason)
    _show_state(recorded.row, as_json=as_json)


@app.command()
def inspect(
    context: typer.Context,
    artifact: Annotated[
        str,
        typer.Argument(help="NAME, NAME@VERSION, or a YAML file with a document of kind Artifact."),
    ],
    model: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a model that answers a Safety suite without and with the artefact.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    suite: Annotated[
        Path | None,
        typer.Option(help="With --model: document of kind Safety; by default the shipped one."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what keeps an artefact from agents: what is wrong, where, and what to do.

    Looks for facts that only a tool's answer says, orders to the model, and hidden characters. Looks for
    personal data and secrets, wider permissions, checks left out, and contradictions of the owner's
    texts. Ends with 1 if it finds something.
    """
    from headrace.cli.artifact import registry
    from headrace.services.artifacts import find_artifact
    from trajectory.artifact import Artifact
    from trajectory.documents.document import load_document

    running = AppContext.of(context)
    artifacts = registry(running)
    file = Path(artifact)
    if file.suffix in (".yaml", ".yml"):
        document = load_document(Artifact, file)
        content: ArtifactSpec | None = document.spec
        label, found = document.metadata.name, artifacts.inspect(document)
    else:
        version = find_artifact(artifacts, artifact)
        content, label, found = version.content, version.label, artifacts.inspect_version(version)
    # What contradicts an artefact is shown in the words of the agent's owner.
    running.note_reading(label, "evolve inspect")
    rows = [
        {
            "rule": one.rule,
            "where": one.where,
            "what": one.what + (f": {one.beside}" if one.beside else ""),
            "remedy": one.remedy,
        }
        for one in found
    ]
    if model is not None and content is not None:
        rows += _safety_rows(model, suite, content)
    print_rows(rows, as_json=as_json, empty="nothing speaks against it")
    if rows:
        raise typer.Exit(1)


def _safety_rows(model: Path, suite: Path | None, content: "ArtifactSpec") -> list[dict[str, str]]:
    """Return the rules of safety that a model breaks with an artefact and kept without."""
    from train.evaluation.gate import judge_safety
    from train.evaluation.safety import safety_with
    from train.recipes.settings import GateSettings, SafetySettings

    found = safety_with(SafetySettings(suite=suite), model, content)
    lost = f"; lost: {', '.join(found.lost)}" if found.lost else ""
    return [
        {
            "rule": one.rule,
            "where": f"suite {found.suite}",
            "what": f"{one.measured:.3g}, at most {one.required:.3g}{lost}",
            "remedy": "change what makes the model less safe, or have a person look at the cases",
        }
        for one in judge_safety(GateSettings(), found)
        if not one.passed
    ]


def decision_book(running: AppContext) -> "DecisionBook":
    """Return the decisions, whose changes are made in the name of who runs this."""
    from headrace.services import changes

    return changes.decision_book(running, running.user.name)


def _policy(file: Path | None) -> "Evolution":
    from evolve.policy import SHIPPED, load_evolution

    return load_evolution(SHIPPED if file is None else file)


def _day(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.year not in _YEARS:
            raise ValueError(text)
    except ValueError:
        raise ConfigurationError(f"--as-of {text}: not a day; write 2026-05-31") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _as_of(running: AppContext, text: str | None) -> tuple[Any, datetime | None]:
    """Return the decision that is named, or the day."""
    if text is None:
        return None, None
    try:
        return None, _day(text)
    except ConfigurationError:
        if not text.isalnum():
            raise
        return decision_book(running).get(text), None


def _show(decided: "EvolutionDecision", *, as_json: bool) -> None:
    document: Any = decided.document
    if as_json:
        print_json(document)
        return
    saw, considered, said = document["saw"], document["considered"], document["decided"]
    fields = {
        "decision": document["decision_id"],
        "policy": document["policy"]["name"],
        "nights": f"{saw['first_night']} to {saw['last_night']}",
        "change": said["surface"],
        "because": said["reason"],
        "subject": said["subject"],
    }
    if (mix := saw["mix"]) is not None:
        moved = "moved" if mix["drifted"] else "as usual"
        fields["mix of work"] = f"{moved} (p {mix['p_value']:.3f})"
    if (expects := document["expects"]) is not None:
        about = expects["metric"] + (f" ({expects['subject']})" if expects["subject"] else "")
        fields["expects"] = f"{about}: at least {expects['at_least']:.3f} by {expects['by'][:10]}"
    print_fields(fields, as_json=False)
    signals = [_signal_row(one) for one in saw["signals"]]
    print_rows(signals, as_json=False, title="Signals: share of sessions that went right")
    columns = ("dimension", "value", "sessions", "events", "tenants", "lift", "share", "q_value",
               "is_new", "is_cause")  # fmt: skip
    for name, shown in (
        ("clusters", columns),
        ("rules", ("name", "surface", "held", "why")),
        ("guards", ("name", "forbids", "why")),
    ):
        print_rows(
            considered[name], as_json=False, columns=shown, title=name.capitalize(), empty=""
        )


def _signal_row(one: Any) -> dict[str, Any]:
    state = "confirmed" if one["confirmed"] else "case" if one["opened"] else "quiet"
    return {
        "signal": f"{one['signal']} {one['subject']}".rstrip(), "state": state,
        "usual": one["reference"]["rate"], "now": one["case"]["rate"], "since": one["since"],
        "sessions": one["case"]["sessions"], "cusum": one["cusum"], "log e": one["log_e"],
        "needed": one["log_e_needed"],
    }  # fmt: skip


def _show_state(row: Any, *, as_json: bool) -> None:
    names = ("decision_id", "surface", "subject", "status", "actor", "reason", "due_at")
    print_fields({name: row[name] for name in names}, as_json=as_json)
