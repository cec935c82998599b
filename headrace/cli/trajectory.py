"""``headrace trajectory``: look at what agents did, one trajectory at a time."""

import json
import sys
from typing import Annotated, Any

import typer

from headrace.app.context import AppContext
from headrace.app.output import console, note, print_json, print_rows, styled
from headrace.cli.common import JsonOption
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
        AppContext.of(context)
        .lake.query(query, parameters={"tenant": tenant, "limit": limit})
        .to_pylist()
    )
    empty = "no trajectories yet; point an agent at the gateway"
    if tenant is not None:
        empty = f"no trajectories of tenant {tenant!r} so far; check the spelling of --tenant"
    print_rows(rows, as_json=as_json, empty=empty)


@app.command()
def correct(
    context: typer.Context,
    step_id: Annotated[str, typer.Argument(help="Id of the step that answered.")],
    answer: Annotated[
        str, typer.Argument(help="What it should have answered, or - for standard input.")
    ],
) -> None:
    """Correct an answer: a signal beside it, which recipes of preferences learn from."""
    from headrace.services.reviews import correct_answer

    text = sys.stdin.read() if answer == "-" else answer
    running = AppContext.of(context)
    correct_answer(running, running.user.name, step_id, text)
    note("taken; it is redacted before it is stored")


@app.command()
def show(
    context: typer.Context,
    trajectory_id: Annotated[
        str, typer.Argument(help="Id of the trajectory, or its first characters.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Show one trajectory as a transcript: messages, tools on the wire, rewards."""
    running = AppContext.of(context)
    lake = running.lake
    found = resolve(lake, trajectory_id)
    running.note_reading(found, "trajectory show")
    steps = lake.query(_STEPS, parameters={"id": found}).to_pylist()
    messages = lake.query(_MESSAGES, parameters={"id": found}).to_pylist()
    rewards = lake.query(_REWARDS, parameters={"id": found}).to_pylist()
    for message in messages:
        message["parts"] = json.loads(message["parts"]) if message["parts"] else []
    for step in steps:
        step["messages"] = [one for one in messages if one["step_id"] == step["step_id"]]
    if as_json:
        print_json({"trajectory_id": found, "steps": steps, "rewards": rewards})
        return
    out = console()
    out.print(styled((f"trajectory {found}", "bold")))
    for step in steps:
        out.print(styled("\n", (_heading(step), "dim")))
        for message in step["messages"]:
            who = " ".join(filter(None, (message["role"] or "?", message["name"])))
            for part in message["parts"]:
                _print_part(who, _part_text(part))
        if step["kind"] == "tool":
            for call in step["tool_calls"]:
                _print_part("on wire", f"→ {call['name']}({call['arguments']})")
            for result in step["tool_results"]:
                mark = "✗" if result["is_error"] else "←"
                _print_part("on wire", f"{mark} {result['content']}")
        if step["error"]:
            _print_part("error", step["error"])
    for reward in rewards:
        value = reward["label"] if reward["value"] is None else f"{reward['value']:g}"
        said = f"{reward['name']} = {value} ({reward['source_kind']})"
        out.print(styled("\n", ("   reward", "bold green"), f"  {said}"))


_STEPS = (
    "select step_index, step_id, kind, role_in_graph, model_served, started_at, latency_ms, "
    "http_status, error, retry_of, tool_calls, tool_results from steps "
    "where trajectory_id = $id order by started_at, step_index"
)
_MESSAGES = (
    "select step_id, is_output, role, name, parts from conversation "
    "where trajectory_id = $id order by started_at, step_index, position"
)
_REWARDS = (
    "select name, value, label, source_kind, recorded_at from trajectory_rewards "
    "where trajectory_id = $id order by name"
)


def _heading(step: dict[str, Any]) -> str:
    role = "" if step["role_in_graph"] == "agent" else f" ({step['role_in_graph']})"
    facts = [step["model_served"] if step["kind"] == "model" else "tool"]
    if step["latency_ms"] is not None:
        facts.append(f"{step['latency_ms']:.0f} ms")
    if step["http_status"] not in (None, 200):
        facts.append(f"HTTP {step['http_status']}")
    if step["retry_of"]:
        facts.append("a retry")
    shown = "  ".join(str(fact) for fact in facts if fact)
    return f"step {step['step_index']}{role}  {shown}  {step['step_id']}"


def _print_part(who: str, text: str) -> None:
    console().print(styled((f"{who:>9}", "bold cyan"), f"  {text}"), soft_wrap=True)


def _part_text(part: dict[str, Any]) -> str:
    if part["type"] in ("text", "reasoning"):
        return str(part["text"])
    if part["type"] == "tool_call":
        return f"→ {part['name']}({json.dumps(part.get('arguments'), ensure_ascii=False)})"
    if part["type"] == "tool_result":
        mark = "✗" if part.get("is_error") else "←"
        return f"{mark} {json.dumps(part.get('content'), ensure_ascii=False)}"
    return json.dumps(part, ensure_ascii=False)


def resolve(lake: Any, beginning: str) -> str:
    """Return the id of the one trajectory whose id begins so.

    Raises:
        ConfigurationError: none does, or several do.
    """
    rows = lake.query(
        "select distinct trajectory_id from steps where starts_with(trajectory_id, $id) limit 2",
        parameters={"id": beginning},
    ).to_pylist()
    if not rows:
        raise ConfigurationError(f"no trajectory {beginning!r}. See `headrace trajectory list`.")
    if len(rows) > 1:
        raise ConfigurationError(f"{beginning!r} fits several trajectories; give more of the id.")
    return str(rows[0]["trajectory_id"])
