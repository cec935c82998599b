"""``headrace feedback``: a reward, label or comment from the command line, through the gateway's API."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.app.clients import local_client_key
from headrace.app.context import AppContext
from headrace.app.gateway_client import post_feedback
from headrace.app.installation import base_url, gateway_config
from headrace.app.output import note, print_fields
from headrace.cli.common import JsonOption
from proxy.api.feedback import MAX_ITEMS
from proxy.clients.keys import KeyRegistry
from proxy.config import GatewayConfig
from trajectory.errors import ConfigurationError, WorkError
from trajectory.files import lines_of


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="feedback")(feedback)


def feedback(
    context: typer.Context,
    response: Annotated[
        str | None, typer.Option(help="Id of a model response, as the client saw it.")
    ] = None,
    step: Annotated[str | None, typer.Option(help="Id of a step.")] = None,
    trajectory: Annotated[str | None, typer.Option(help="Id of a trajectory.")] = None,
    session: Annotated[str | None, typer.Option(help="The client's session name.")] = None,
    name: Annotated[str, typer.Option(help="Name of the signal.")] = "success",
    value: Annotated[float | None, typer.Option(help="Value of the signal, a number.")] = None,
    label: Annotated[str | None, typer.Option(help="Label of the signal, a word.")] = None,
    rationale: Annotated[
        str | None, typer.Option(help="Reason; redacted before it is stored.")
    ] = None,
    span: Annotated[
        str | None,
        typer.Option(
            help="With --response or --step: START:END of a span of the answer, from 0, END left out."
        ),
    ] = None,
    span_unit: Annotated[
        str, typer.Option(help="What the span is counted in: characters or tokens.")
    ] = "characters",
    source_kind: Annotated[
        str, typer.Option(help="env, verifier, human_explicit, judge or rule.")
    ] = "human_explicit",
    source: Annotated[
        str, typer.Option(help="Person, judge or verifier that gave the signal.")
    ] = "headrace-cli",
    file: Annotated[
        Path | None, typer.Option(help="JSON-lines file with many signals, instead of the options.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Client key of the tenant; by default this machine's own.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Send feedback to the running gateway, which captures it for governance."""
    running = AppContext.of(context)
    if file is not None:
        items = _from_file(file)
    else:
        item = {
            **_target(response, step, trajectory, session),
            "name": name,
            "value": value,
            "label": label,
            "rationale": rationale,
            "source_kind": source_kind,
            "source": source,
            "span": None if span is None else _span(span, span_unit),
        }
        _warn_when_unknown(running, step=step, trajectory=trajectory)
        items = [{field: entry for field, entry in item.items() if entry is not None}]
    print_fields(_send(running, items, key), as_json=as_json)


def _target(
    response: str | None, step: str | None, trajectory: str | None, session: str | None
) -> dict[str, str]:
    """Return what the feedback is about, as the gateway's API takes it."""
    targets = {
        "response_id": response,
        "step_id": step,
        "trajectory_id": trajectory,
        "session_id": session,
    }
    given = {target: text for target, text in targets.items() if text}
    if len(given) != 1:
        raise ConfigurationError("give one of --response, --step, --trajectory, --session.")
    return given


def _span(text: str, unit: str) -> dict[str, Any]:
    """Return a span as the gateway's API takes it, which checks the rest."""
    start, colon, end = text.partition(":")
    if not (colon and start.isdecimal() and end.isdecimal()):
        raise ConfigurationError(f"--span {text!r} is not START:END, two whole numbers like 10:25.")
    return {"unit": unit, "start": int(start), "end": int(end)}


def _warn_when_unknown(running: AppContext, *, step: str | None, trajectory: str | None) -> None:
    """Say when the lake does not hold the target; it may still come, so nothing is refused."""
    column, name = ("step_id", step) if step else ("trajectory_id", trajectory)
    if name is None or not any(running.home.state.glob("checkpoint.*")):
        return
    found = running.lake.query(
        f"select 1 from steps where {column} = $id limit 1",  # noqa: S608 - two fixed names
        parameters={"id": name},
    )
    if found.num_rows == 0:
        note(f"the lake has no {column} {name} yet; the feedback waits for it.")


def _from_file(path: Path) -> list[dict[str, Any]]:
    items = []
    for number, line in enumerate(lines_of(path), start=1):
        if line.strip():
            try:
                items.append(json.loads(line))
            except ValueError as error:
                raise ConfigurationError(f"{path}:{number}: not JSON: {error}") from None
    return items


def _send(running: AppContext, items: list[dict[str, Any]], key: str | None) -> dict[str, Any]:
    config = gateway_config(running.settings, running.home)
    client_key = key or local_client_key(running.home, KeyRegistry.load(config.keys))
    taken: list[Any] = []
    for first in range(0, len(items), MAX_ITEMS):
        taken += _post(config, client_key, items[first : first + MAX_ITEMS])
    return {"accepted": len(taken), "feedback_ids": taken}


def _post(config: GatewayConfig, client_key: str, items: list[dict[str, Any]]) -> list[Any]:
    """Send as many items as one request may carry; return their ids."""
    import httpx

    try:
        answer = post_feedback(config, client_key, items)
    except httpx.TransportError as error:
        raise WorkError(
            f"no gateway answers at {base_url(config)} ({type(error).__name__}). Start `headrace up`."
        ) from None
    try:
        body = answer.json()
    except ValueError:
        raise WorkError(f"what answers at {base_url(config)} is no gateway of Headrace.") from None
    if answer.status_code != 202:
        raise WorkError(f"the gateway refused the feedback: {body}")
    return list(body["feedback_ids"])
