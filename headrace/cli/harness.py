"""``headrace harness``: which agents there are, and what was edited from one version to the next."""

import difflib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.app.context import AppContext
from headrace.app.output import jsonable, print_fields, print_rows, printable
from headrace.cli.common import JsonOption
from trajectory.errors import ConfigurationError
from trajectory.harness.normal_form import normal_form

if TYPE_CHECKING:
    from lakehouse.lake import Lake

app = typer.Typer(
    help="The agents' harnesses: their names, their versions, and what changed between them.",
    no_args_is_help=True,
)

_WANTED = "NAME, or NAME@VERSION; without a version the latest. `headrace harness list` lists them."
VersionArgument = Annotated[str, typer.Argument(help=_WANTED)]
TenantOption = Annotated[str | None, typer.Option(help="Only this tenant's.")]
AppOption = Annotated[str | None, typer.Option("--app", help="Only this application's.")]

_LISTED = """
SELECT v.tenant_id AS tenant, v.app_id AS app, v.harness_name AS name, v.harness_version AS version,
       v.is_declared, v.first_seen_at, max(s.started_at) AS last_seen_at,
       list_sort(list_distinct(list(s.agent_role) FILTER (s.agent_role IS NOT NULL))) AS roles,
       count(DISTINCT s.trajectory_id) AS trajectories, count(s.step_id) AS steps, v.harness_id
FROM harness_versions v
LEFT JOIN steps s ON s.tenant_id = v.tenant_id AND s.app_id = v.app_id
 AND s.harness_name = v.harness_name AND s.harness_version = v.harness_version
WHERE ($tenant IS NULL OR v.tenant_id = $tenant) AND ($app IS NULL OR v.app_id = $app)
  AND ($name IS NULL OR v.harness_name = $name)
GROUP BY ALL ORDER BY tenant, app, name, version
"""
_TEXT = """
SELECT h.system_prompt, h.tools FROM harnesses h
WHERE h.tenant_id = $tenant AND (h.harness_id = $id OR h.harness_id IN (
    SELECT harness_id FROM steps WHERE tenant_id = $tenant AND app_id = $app
    AND harness_name = $name AND harness_version = $version))
ORDER BY h.harness_id <> $id, h.first_seen_at LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class _HarnessText:
    """A version that was asked for, with the text of a harness that had it."""

    fields: dict[str, Any]
    system_prompt: str
    tools: str

    @property
    def lines(self) -> list[str]:
        """The lines of the normal form: the prompt's, then one for each tool."""
        form = normal_form(self.system_prompt, self.tools)
        return [*form.lines, *form.tools]

    @property
    def called(self) -> str:
        """Name and version as commands take them."""
        return f"{self.fields['name']}@{self.fields['version']}"


@app.command("list")
def list_versions(
    context: typer.Context,
    tenant: TenantOption = None,
    app_id: AppOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the versions of every agent's harness, with how much each has served."""
    rows = _rows(AppContext.of(context).lake, tenant, app_id, None)
    print_rows(
        [{name: value for name, value in row.items() if name != "harness_id"} for row in rows],
        as_json=as_json,
        empty="no harness yet: a model call with a system prompt or tools brings the first",
    )


@app.command()
def show(
    context: typer.Context,
    version: VersionArgument,
    tenant: TenantOption = None,
    app_id: AppOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one version: who uses it, its redacted system prompt and its tools."""
    running = AppContext.of(context)
    found = _find(running.lake, version, tenant, app_id)
    running.note_reading(found.called, "harness show")
    text = {"system_prompt": found.system_prompt, "tools": json.loads(found.tools)}
    if as_json:
        print_fields({**found.fields, **text}, as_json=True)
        return
    print_fields(found.fields, as_json=False)
    typer.echo(f"\n{printable(found.system_prompt)}\n")
    for tool in normal_form("", found.tools).tools:
        typer.echo(printable(tool))


@app.command()
def diff(
    context: typer.Context,
    old: VersionArgument,
    new: VersionArgument,
    tenant: TenantOption = None,
    app_id: AppOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what was edited between two versions; what is rendered anew each time is left out."""
    running = AppContext.of(context)
    before, after = (_find(running.lake, one, tenant, app_id) for one in (old, new))
    running.note_reading(f"{before.called} {after.called}", "harness diff")
    changes = list(
        difflib.unified_diff(
            before.lines, after.lines, before.called, after.called, lineterm="", n=2
        )
    )
    if as_json:
        removed, added = (
            [line[1:] for line in changes[2:] if line.startswith(sign)] for sign in "-+"
        )
        said = {"old": before.called, "new": after.called, "removed": removed, "added": added}
        typer.echo(json.dumps(jsonable(said), indent=2))
        return
    for line in changes or ["no difference but in what is rendered anew"]:
        typer.echo(printable(line))


def _rows(
    lake: "Lake", tenant: str | None, app_id: str | None, name: str | None
) -> list[dict[str, Any]]:
    asked = {"tenant": tenant, "app": app_id, "name": name}
    return list(lake.query(_LISTED, parameters=asked).to_pylist())


def _find(lake: "Lake", asked: str, tenant: str | None, app_id: str | None) -> _HarnessText:
    name, at, number = asked.rpartition("@")
    if not at or not number.isdigit():
        name, number = asked, ""
    rows = _rows(lake, tenant, app_id, name)
    owners = {(row["tenant"], row["app"]) for row in rows}
    if len(owners) > 1:
        listed = ", ".join(f"--tenant {one} --app {other}" for one, other in sorted(owners))
        raise ConfigurationError(f"several agents are named {name!r}; choose one: {listed}")
    chosen = [row for row in rows if not number or row["version"] == int(number)][-1:]
    if not chosen:
        raise ConfigurationError(
            f"there is no harness {asked!r}; `headrace harness list` lists what there is"
        )
    fields = chosen[0]
    text = lake.query(
        _TEXT,
        parameters={
            "tenant": fields["tenant"], "app": fields["app"], "name": fields["name"],
            "version": fields["version"], "id": fields.pop("harness_id"),
        },
    ).to_pylist()  # fmt: skip
    if not text:
        raise ConfigurationError(
            f"the text of {asked!r} is gone: the steps that had it were erased or have expired"
        )
    return _HarnessText(fields, text[0]["system_prompt"], text[0]["tools"])
