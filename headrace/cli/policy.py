"""``headrace policy``: is it right, does it do what its examples say, and why did it decide so."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.app.context import AppContext
from headrace.app.output import console, jsonable, print_fields, print_json, print_rows, styled
from headrace.cli.common import JsonOption, days_until, nothing_stored
from headrace.cli.requests import done_or_waits
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from governance.policy import PolicyBundle
    from governance.redact import Redactor
    from governance.trial import Explanation
    from governance.trial.dry_run import DryRun

app = typer.Typer(help="Policy bundles: check, test, explain.", no_args_is_help=True)

CheckedArgument = Annotated[
    Path | None,
    typer.Argument(
        help="Folder, shipped name, or one file of documents or settings; by default the bundle in force."
    ),
]
BundleArgument = Annotated[
    Path | None,
    typer.Argument(
        help="Folder of policy documents, or a shipped name; by default the one in force."
    ),
]


@app.command()
def check(
    context: typer.Context, bundle: CheckedArgument = None, as_json: JsonOption = False
) -> None:
    """Load a bundle, its detectors and its gate; say file, line and field of what is wrong.

    Documents of kind Substrate, Schedule and Recipe in the folder are checked too. A file is
    checked document by document; settings (headrace.yaml) with their webhooks' rules and secrets.
    """
    from governance.quality import gate_of
    from headrace.app.guard import check_actions, read_actions
    from headrace.app.inline import check_routes
    from headrace.services.documents import check_beside, check_file

    if bundle is not None and bundle.is_file():
        kinds = check_file(bundle)
        print_fields({"file": bundle, "kinds": ", ".join(kinds), "valid": True}, as_json=as_json)
        return
    loaded = _load(AppContext.of(context), bundle)
    check_routes(loaded, AppContext.of(context).settings.gateway.routes)
    beside = check_beside(loaded.path)
    check_actions(read_actions(loaded.path), AppContext.of(context).settings.gateway.routes)
    _redactor(loaded, b"headrace policy check")
    gate_of(loaded)
    fields = {"bundle": loaded.path, "content_hash": loaded.content_hash, "valid": True}
    print_fields(fields | ({"beside": ", ".join(beside)} if beside else {}), as_json=as_json)


@app.command("test")
def run_tests(
    context: typer.Context, bundle: BundleArgument = None, as_json: JsonOption = False
) -> None:
    """Run the test cases of a bundle. Exit code 1 if one fails."""
    from governance.trial import run_policy_tests
    from headrace.app.action_trial import ActionTrial
    from headrace.app.inline_trial import InlineTrial

    loaded = _load(AppContext.of(context), bundle)
    results = run_policy_tests(
        loaded, _redactor, wire=InlineTrial(loaded), calls=ActionTrial(loaded)
    )
    failed = [result for result in results if not result.passed]
    if as_json:
        print_json(jsonable(results))
    else:
        for result in results:
            mark = ("✓", "green") if result.passed else ("✗", "red")
            console().print(styled(mark, f" {result.file}:{result.line}: {result.name}"))
            for problem in result.problems:
                console().print(styled(f"    {problem}"))
        console().print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    if failed:
        raise typer.Exit(1)


@app.command()
def explain(
    context: typer.Context,
    what: Annotated[
        str, typer.Argument(help="A step or exchange id, or a YAML file with a `given` case.")
    ],
    bundle: Annotated[
        Path | None, typer.Option(help="Bundle to explain with; by default the one in force.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print each rule's verdict on one row or one example, with its reason; never the text."""
    running = AppContext.of(context)
    loaded = _load(running, bundle)
    if Path(what).is_file():
        explanation = _explain_file(loaded, Path(what))
    else:
        explanation = _explain_row(running, loaded, what)
    if as_json:
        print_json(jsonable(explanation))
        return
    out = console()
    out.print(styled((explanation.decision, "bold"), f" under policy {explanation.policy_hash}"))
    if not explanation.current:
        out.print(
            styled((f"the policy in force is another one now: {loaded.content_hash}", "yellow"))
        )
    print_rows([jsonable(verdict) for verdict in explanation.verdicts], as_json=False)


@app.command()
def diff(
    context: typer.Context,
    old: Annotated[Path, typer.Argument(help="Folder, or a shipped name.")],
    new: Annotated[Path, typer.Argument(help="Folder, or a shipped name.")],
    as_json: JsonOption = False,
) -> None:
    """Show where two bundles decide differently, setting by setting."""
    from governance.policy.diff import diff_bundles

    running = AppContext.of(context)
    changes = diff_bundles(_load(running, old), _load(running, new))
    rows = [jsonable(change) for change in changes]
    print_rows(rows, as_json=as_json, empty="they decide the same")


@app.command("dry-run")
def dry_run(
    context: typer.Context,
    bundle: Annotated[Path, typer.Argument(help="Folder, or a shipped name.")],
    day: Annotated[
        str | None, typer.Option(help="UTC day, YYYY-MM-DD; by default yesterday.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="Number of days that end with this day.")] = 1,
    texts: Annotated[
        int, typer.Option(min=0, help="Largest number of stored messages to redact again.")
    ] = 2000,
    as_json: JsonOption = False,
) -> None:
    """Show what another bundle would change on yesterday's lake, by rule and count. Writes nothing."""
    from governance.trial.dry_run import DryRun
    from headrace.app.installation import gateway_config
    from headrace.services.dry_run import gather
    from proxy.clients.keys import KeyRegistry

    running = AppContext.of(context)
    since, until = days_until(day, days)
    loaded = _load(running, bundle)
    redactor = _redactor(loaded, running.secrets.derive(b"dry-run"))
    run = DryRun(loaded, redactor, running.lake.consents(), now=datetime.now(UTC))
    keys = KeyRegistry.load(gateway_config(running.settings, running.home.create()).keys).list()
    gather(
        running.lake.query,
        run,
        since=since,
        until=until,
        key_purposes={key.key_id: key.purposes for key in keys},
        most_texts=texts,
    )
    _print_dry_run(run, loaded, nothing_stored(until), as_json=as_json)


def _print_dry_run(run: "DryRun", loaded: "PolicyBundle", nothing: str, *, as_json: bool) -> None:
    changes = [jsonable(change) for change in run.changes()]
    if as_json:
        said = {"content_hash": loaded.content_hash, "steps": run.steps, "messages": run.texts}
        print_json(said | {"changes": changes, "not_judged": list(run.not_judged())})
        return
    print_rows(changes, as_json=False, empty="nothing would change" if run.steps else nothing)
    console().print(f"{run.steps} steps and {run.texts} messages were looked at; not judged:")
    for what in run.not_judged():
        console().print(styled(f"  - {what}"))


@app.command()
def adopt(
    context: typer.Context,
    bundle: Annotated[Path, typer.Argument(help="Folder, or a shipped name.")],
    why: Annotated[str, typer.Option("--reason", help="Why; kept with the request.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Ask that a copy of a bundle be put in force, where two people decide that (policy.four_eyes)."""
    from headrace.services.acts import POLICY
    from headrace.services.four_eyes import adoption, perform, wants_two

    running = AppContext.of(context)
    if not wants_two(running, POLICY):
        raise ConfigurationError(
            "the bundle in force is the one that the setting policy.bundle names; a copy is adopted where "
            "policy.four_eyes names policy"
        )
    check(context, bundle, as_json)
    given, content_hash = adoption(running, bundle)
    found = perform(running, running.user, POLICY, given, subject=content_hash, why=why)
    done_or_waits(found, as_json=as_json)


@app.command()
def schema() -> None:
    """Print the JSON Schema of documents of every kind, for editors."""
    from headrace.services.documents import json_schema

    print_json(json_schema())


def _load(running: AppContext, bundle: Path | None) -> "PolicyBundle":
    from governance.policy import load_bundle

    return load_bundle(bundle or running.settings.policy.folder)


def _redactor(bundle: "PolicyBundle", key: bytes) -> "Redactor":
    from governance.redact import redactor_of
    from governance.redact.subject_keys import MemorySubjectKeys

    return redactor_of(bundle, pseudonym_key=key, subjects=MemorySubjectKeys())


def _explain_file(bundle: "PolicyBundle", path: Path) -> "Explanation":
    from governance.trial import explain_exchange
    from governance.trial.cases import load_given
    from governance.trial.run import TRIAL_KEY

    given = load_given(path)
    return explain_exchange(bundle, _redactor(bundle, TRIAL_KEY), given)


def _explain_row(running: AppContext, bundle: "PolicyBundle", name: str) -> "Explanation":
    from governance.records import GovernanceRecord, LedgerRecord, QuarantineRecord
    from governance.trial import explain_step

    def rows(table: str, record: Any) -> list[Any]:
        key = "step_id = $id" if table == "governance" else "(step_id = $id or exchange_id = $id)"
        found = running.lake.query(
            f"select * from {table} where {key}",  # noqa: S608 - fixed names
            parameters={"id": name},
        ).to_pylist()
        return [_record(record, row) for row in found]

    # A step that was held and then released has a line for each.
    ledger = sorted(rows("exchanges", LedgerRecord), key=lambda row: row.disposition != "stored")
    step = (ledger[0].step_id if ledger else None) or name
    governance = running.lake.query(
        "select * from governance where step_id = $id order by decided_at", parameters={"id": step}
    ).to_pylist()
    quarantine = rows("quarantine", QuarantineRecord)
    if not ledger and not governance and not quarantine:
        raise ConfigurationError(
            f"no step or exchange {name!r} in the lake, and no such file; "
            "the tables `exchanges` and `steps` have the ids."
        )
    return explain_step(
        bundle,
        ledger=ledger[0] if ledger else None,
        governance=[_record(GovernanceRecord, row) for row in governance],
        quarantine=quarantine,
    )


def _record(kind: Any, row: dict[str, Any]) -> Any:
    fields: dict[str, Any] = {}
    for name in kind.__dataclass_fields__:
        value = row.get(name)
        if isinstance(value, list):
            pairs = name == "redaction_counts"
            value = dict(value) if pairs else tuple(value)
        fields[name] = value
    return kind(**fields)
