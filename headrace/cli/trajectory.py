"""``headrace trajectory``: look at what agents did, one trajectory at a time."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.common import JsonOption, Running
from headrace.render import console, print_json, print_rows
from trajectory.errors import ConfigurationError

app = typer.Typer(help="Look at trajectories.", no_args_is_help=True)

_LISTED = (
    "trajectory_id, tenant_id, app_id, started_at, steps, tool_calls, tool_failures, "
    "model_served, reward, key_source"
)


@app.command("list")
def list_trajectories(
    context: typer.Context,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the latest first.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the latest trajectories."""
    query = f"select {_LISTED} from trajectories where $tenant is null or tenant_id = $tenant order by started_at desc limit $limit"  # noqa: S608 - fixed column list
    rows = (
        Running.of(context)
        .lake.query(query, parameters={"tenant": tenant, "limit": limit})
        .to_pylist()
    )
    print_rows(rows, as_json=as_json, empty="no trajectories yet; point an agent at the gateway")


@app.command()
def show(
    context: typer.Context,
    trajectory_id: Annotated[str, typer.Argument(help="Its id, or the beginning of it.")],
    as_json: JsonOption = False,
) -> None:
    """Show one trajectory as a transcript, with tools and rewards."""
    lake = Running.of(context).lake
    found = _resolve(lake, trajectory_id)
    transcript = lake.query(
        "select step_index, step_id, role_in_graph, is_output, role, parts, started_at "
        "from conversation where trajectory_id = $id order by started_at, step_index, position",
        parameters={"id": found},
    ).to_pylist()
    rewards = lake.query(
        "select name, value, label, source_kind, recorded_at from trajectory_rewards "
        "where trajectory_id = $id order by name",
        parameters={"id": found},
    ).to_pylist()
    for line in transcript:
        line["parts"] = json.loads(line["parts"]) if line["parts"] else []
    if as_json:
        print_json({"trajectory_id": found, "messages": transcript, "rewards": rewards})
        return
    out = console()
    out.print(f"[bold]{found}[/]")
    step = None
    for line in transcript:
        if line["step_id"] != step:
            step = line["step_id"]
            mark = "" if line["role_in_graph"] == "agent" else f" ({line['role_in_graph']})"
            out.rule(f"step {line['step_index']}{mark}  {step}", align="left", style="dim")
        for part in line["parts"]:
            out.print(f"[bold cyan]{line['role'] or '?':>9}[/]  ", end="")
            out.print(_part_text(part), markup=False)
    for reward in rewards:
        value = reward["label"] if reward["value"] is None else f"{reward['value']:g}"
        out.print(f"[bold green]   reward[/]  {reward['name']} = {value} ({reward['source_kind']})")


def _part_text(part: dict[str, Any]) -> str:
    if part["type"] in ("text", "reasoning"):
        return str(part["text"])
    if part["type"] == "tool_call":
        return f"→ {part['name']}({json.dumps(part.get('arguments'), ensure_ascii=False)})"
    if part["type"] == "tool_result":
        mark = "✗" if part.get("is_error") else "←"
        return f"{mark} {json.dumps(part.get('content'), ensure_ascii=False)}"
    return json.dumps(part, ensure_ascii=False)


@app.command()
def export(
    context: typer.Context,
    output: Annotated[Path, typer.Option("--output", "-o", help="JSON-lines file to write.")],
    where: Annotated[
        str, typer.Option(help="SQL condition over the view `trajectories`.")
    ] = "true",
    purpose: Annotated[
        str, typer.Option(help="Only trajectories whose every step is allowed for this purpose.")
    ] = "share",
    document_format: Annotated[
        str, typer.Option("--format", "-f", help="openai-messages or atif.")
    ] = "openai-messages",
) -> None:
    """Export trajectories as JSON lines; only what policy allows for the purpose."""
    from headrace.exporting import export_trajectories

    count = export_trajectories(
        Running.of(context).lake,
        output,
        where=where,
        purpose=purpose,
        document_format=document_format,
    )
    typer.echo(f"{count} trajectories written to {output}")


def _resolve(lake: Any, beginning: str) -> str:
    rows = lake.query(
        "select distinct trajectory_id from steps where starts_with(trajectory_id, $id) limit 2",
        parameters={"id": beginning},
    ).to_pylist()
    if not rows:
        raise ConfigurationError(f"no trajectory {beginning!r}. See `headrace trajectory list`.")
    if len(rows) > 1:
        raise ConfigurationError(f"{beginning!r} fits several trajectories; give more of the id.")
    return str(rows[0]["trajectory_id"])
