"""``headrace trajectory replay``: an agent meets its own past instead of models and tools."""

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import console, note, print_json, styled
from headrace.cli.common import JsonOption
from trajectory.child_process import environment_of_others
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from headrace.replay.replies import Replies
    from headrace.replay.server import LiveUpstreams, RunningReplay
    from trajectory.canonical import JsonObject

_FLUSH_SECONDS = 0.5
"""For the last answer to reach an agent that the replay did not start."""


def register(app: typer.Typer) -> None:
    """Add the command to ``headrace trajectory``."""
    app.command(name="replay")(replay)


def replay(
    context: typer.Context,
    trajectory_id: Annotated[
        str, typer.Argument(help="Id of the trajectory, or its first characters.")
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="The agent's command, after --. Without it, the command prints the addresses."
        ),
    ] = None,
    model_upstream: Annotated[
        str | None,
        typer.Option(
            help="Ask this model API instead of replaying models (its address without /v1); tools"
            " are still replayed."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model to ask there, instead of the recorded one.")
    ] = None,
    tools_upstream: Annotated[
        str | None,
        typer.Option(help="Ask this MCP server instead of replaying tools; models are replayed."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Replay a recorded trajectory to a real agent, and report the first divergence.

    Ends with 0 when the run was identical and with 1 at the first divergence.
    """
    from headrace.cli.trajectory import resolve
    from headrace.replay.server import LiveUpstreams

    if model is not None and model_upstream is None:
        raise ConfigurationError("--model names what to ask at --model-upstream; give both.")
    running = AppContext.of(context)
    found = resolve(running.lake, trajectory_id)
    if model_upstream is not None or tools_upstream is not None:
        _may_leave(running, found)
    running.note_reading(found, "trajectory replay")
    live = LiveUpstreams(model_upstream, model, tools_upstream)
    replies = _replies(running, found, live)
    result = _replayed(replies, live, port, command)
    if as_json:
        print_json(result)
    else:
        _print(result)
    if not replies.player.report().identical:
        raise typer.Exit(1)


def _replies(running: AppContext, trajectory_id: str, live: "LiveUpstreams") -> "Replies":
    """Return what answers from the recording, except for what is asked live."""
    from governance.redact.pseudonym import MARK
    from headrace.replay.replies import Replies, cleaner
    from headrace.replay.stored_recording import load_recording
    from trajectory.replay import Player, ReplayComparison

    recording, tenant = load_recording(running.lake, trajectory_id)
    player = Player(
        recording,
        ReplayComparison(mark=MARK, blind_to_results=live.tools_upstream is not None),
        models=live.model_upstream is None,
        tools=live.tools_upstream is None,
    )
    clean = cleaner(
        running.settings,
        running.home,
        running.secrets,
        tenant_id=tenant,
        trajectory_id=trajectory_id,
    )
    return Replies(player, clean)


def _replayed(
    replies: "Replies", live: "LiveUpstreams", port: int, command: list[str] | None
) -> "JsonObject":
    """Serve the recording until the agent is done; return what came of it."""
    from headrace.replay.server import serving

    code = None
    with serving(replies, live, port=port) as state:
        if command:
            code = _run(command, state)
        else:
            _wait(state, live)
    return {
        **replies.player.report().to_json(),
        "drift": {"system_prompts": replies.drift.system_prompts, "models": replies.drift.models},
        "calls_upstream": {**state.calls_upstream},
        "command_exit_code": code,
    }


def _may_leave(running: AppContext, trajectory_id: str) -> None:
    """Let stored content go to another model, or to tools, only where every step is allowed for ``eval``.

    Raises:
        ConfigurationError: a step is not.
    """
    rows = running.lake.query(
        "select count(*) as n from steps s left join eligible_steps e"
        " on s.tenant_id = e.tenant_id and s.step_id = e.step_id where s.trajectory_id = $id"
        " and (e.step_id is null or not list_contains(e.purposes, 'eval'))",
        parameters={"id": trajectory_id},
    ).to_pylist()
    if rows[0]["n"]:
        raise ConfigurationError(
            f"{rows[0]['n']} steps of {trajectory_id} are not allowed for the purpose eval, so what"
            " they say may not go elsewhere. See `headrace policy explain`."
        )


def _run(command: list[str], state: "RunningReplay") -> int:
    """Run the agent against the replay; return its exit code."""
    environment = environment_of_others() | state.environment
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        environment.setdefault(name, "replay")
    # AWS's clients send no bearer token without TLS; they sign with whatever else they have.
    environment.pop("AWS_BEARER_TOKEN_BEDROCK", None)
    try:
        # What the agent prints is no part of the report.
        return subprocess.run(command, env=environment, stdout=sys.stderr, check=False).returncode
    except OSError as error:
        raise ConfigurationError(f"cannot run {command[0]!r}: {error.strerror}") from None


def _wait(state: "RunningReplay", live: "LiveUpstreams") -> None:
    """Print where to point the agent; return at the end of the recording, or at Ctrl-C."""
    for name, value in state.environment.items():
        note(f"export {name}={value}")
    end = "stop with Ctrl-C" if live.model_upstream else "ends with the recording, or Ctrl-C"
    note(f"waiting for the agent; {end}.")
    try:
        state.finished.wait()
        time.sleep(_FLUSH_SECONDS)
    except KeyboardInterrupt:
        return


def _print(result: "JsonObject") -> None:
    out = console()
    divergence = result["divergence"]
    served = f"{result['model_answers']} model and {result['tool_answers']} tool answers replayed"
    if not isinstance(divergence, dict):
        out.print(styled(("identical", "bold green"), f"  {served}"))
        return
    out.print(styled(("diverged", "bold red"), f"  {served}"))
    step = divergence["step_id"] or "after the last recorded step"
    out.print(styled(f"  {divergence['kind']} at {divergence['where'] or 'the request'} ({step})"))
    for name in ("expected", "came"):
        out.print(styled(f"  {name:>8}  {divergence[name]}"), soft_wrap=True)
