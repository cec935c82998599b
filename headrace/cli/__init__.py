"""The ``headrace`` command: every job of every user, with one way to end.

Exit codes: 0 done (also nothing to do), 1 a check found something, 2 usage or configuration,
3 the work failed, 130 interrupted.
"""

import io
import os
import sqlite3
import sys
import traceback
from errno import EACCES, EEXIST, EISDIR, ENOENT, ENOTDIR, EPERM
from pathlib import Path
from typing import Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import note
from headrace.app.version import check_packages, headrace_version
from headrace.cli import (
    approvals,
    artifact,
    artifact_candidates,
    audit,
    config,
    consent,
    console,
    credit,
    demo,
    doctor,
    env,
    erase,
    evolve,
    feedback,
    gateway,
    govern,
    harness,
    keys,
    lake,
    lineage,
    login,
    policy,
    quality,
    quarantine,
    replay,
    requests,
    reveal,
    review,
    schedule,
    serve,
    sql,
    sql_server,
    substrate,
    tap,
    train,
    train_trials,
    trajectory,
    trajectory_documents,
    trial,
    up,
)
from trajectory.errors import HeadraceError

app = typer.Typer(
    name="headrace",
    help="Capture agent traffic, govern it, query it, and train better models from it.",
    epilog="Settings: flags over environment (HEADRACE_…) over headrace.yaml in the home folder over "
    "defaults. Exit codes: 0 done, 1 a check found something, 2 usage or configuration, 3 the work "
    "failed, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (
    up, env, doctor, demo, sql, lineage, feedback, erase, reveal, govern, serve, sql_server, tap, login,
):  # fmt: skip
    command.register(app)
trajectory_documents.register(trajectory.app)
artifact_candidates.register(artifact.app)
replay.register(trajectory.app)
train_trials.register(train.app)
for name, group in {
    "config": config.app,
    "trajectory": trajectory.app,
    "harness": harness.app,
    "lake": lake.app,
    "policy": policy.app,
    "consent": consent.app,
    "quarantine": quarantine.app,
    "approvals": approvals.app,
    "quality": quality.app,
    "audit": audit.app,
    "gateway": gateway.app,
    "keys": keys.app,
    "substrate": substrate.app,
    "credit": credit.app,
    "train": train.app,
    "schedule": schedule.app,
    "evolve": evolve.app,
    "artifact": artifact.app,
    "trial": trial.app,
    "console": console.app,
    "requests": requests.app,
    "review": review.app,
}.items():
    app.add_typer(group, name=name)

_PANELS = {
    "Begin": ("up", "env", "doctor", "demo", "config"),
    "Look": ("console", "sql", "trajectory", "harness", "lineage", "feedback", "review", "lake"),
    "Govern": (
        "policy",
        "consent",
        "quarantine",
        "approvals",
        "requests",
        "quality",
        "erase",
        "reveal",
        "audit",
    ),
    "Learn": ("substrate", "credit", "train", "schedule", "evolve", "artifact", "trial"),
    "Run parts alone, and let clients in": (
        *("gateway", "govern", "serve", "sql-server", "tap", "keys", "login", "logout", "whoami"),
    ),
}
_PANEL_OF = {name: panel for panel, names in _PANELS.items() for name in names}
for of_command in app.registered_commands:
    of_command.rich_help_panel = _PANEL_OF[of_command.name or ""]
for of_group in app.registered_groups:
    of_group.rich_help_panel = _PANEL_OF[of_group.name or ""]


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"headrace {headrace_version()}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    home: Annotated[
        Path | None,
        typer.Option(
            help="Home folder of the installation.",
            show_default=".headrace, or HEADRACE_HOME",
            file_okay=False,
        ),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[  # noqa: ARG001 - handled by its callback
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Options that stand before the command."""
    check_packages()
    context.obj = AppContext(home_option=home, debug=debug)


def main() -> None:
    """Run the command line and leave with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without our characters
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; return its exit code. Errors are one line with the remedy."""
    debug = "--debug" in arguments
    try:
        result = app(args=arguments, prog_name="headrace", standalone_mode=False)
    except HeadraceError as error:
        if debug:
            raise
        note(f"headrace: {error}")
        return error.exit_code
    except typer.TyperException as error:
        show = getattr(error, "show", None)
        show() if show else note(f"headrace: {error}")
        return 2
    except (KeyboardInterrupt, typer.Abort):
        note("interrupted")
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except SystemExit as left:
        # Typer leaves so where whoever reads our output has had enough of it (`| head`).
        if isinstance(left.__context__, BrokenPipeError):
            return 0
        raise
    except OSError as error:
        if debug:
            raise
        note(f"headrace: {refused_by_the_system(error)}")
        return 2 if error.errno in _WRONG_PATH else 3
    except sqlite3.OperationalError as error:
        if debug:
            raise
        note(
            f"headrace: a file of state cannot be written or read ({error}); check the disk and its owner"
        )
        return 3
    except ModuleNotFoundError as error:
        remedy = missing_extra(error.name or "")
        if debug or remedy is None:
            raise
        note(f"headrace: {remedy}")
        return 2
    except Exception as error:
        if debug:
            raise
        note(f"headrace: {unexpected(error)}")
        return 3
    if result == 130:
        note("interrupted")
    return result if isinstance(result, int) else 0


_WRONG_PATH = frozenset({ENOENT, ENOTDIR, EISDIR, EACCES, EPERM, EEXIST})


def refused_by_the_system(error: OSError) -> str:
    """Return what the system refused, where, and what to look at."""
    said = error.strerror or type(error).__name__
    if error.filename is None:
        return f"{said}; `headrace --debug …` shows where."
    return f"{os.fsdecode(error.filename)}: {said}; check the path, its owner and the disk."


def unexpected(error: Exception) -> str:
    """Return where an error came from that nobody foresaw; its text may quote content, so it is not shown."""
    ours = [
        f"{'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(_ROOT) and ".venv" not in frame.filename
    ]
    way = " → ".join(ours[-5:])
    return (
        f"unexpected {type(error).__name__} ({way}). This is a fault of Headrace; "
        "`headrace --debug …` shows all of it."
    )


_ROOT = Path(__file__).parents[2]

_EXTRAS = {
    "mitmproxy": "proxy",
    "uvloop": "proxy",
    "httptools": "proxy",
    "aiohappyeyeballs": "proxy",
    "brotli": "proxy",
    "opentelemetry": "proxy",
    "presidio_analyzer": "governance",
    "spacy": "governance",
    "great_expectations": "governance",
    "ahocorasick": "governance",
    "torch": "train",
    "transformers": "train",
    "trl": "train",
    "datasets": "train",
    "peft": "train",
    "accelerate": "train",
    "cronsim": "train",
    "ray": "engine",
    "openai": "practice",
    "anthropic": "practice",
    "mcp": "practice",
}


def missing_extra(module: str) -> str | None:
    """Return what to install when ``module`` is missing, or None when it is not an optional one."""
    extra = _EXTRAS.get(module.partition(".")[0])
    if extra is None:
        return None
    return f"this needs the {extra!r} extra ({module} is missing). Run: pip install 'headrace[{extra}]'"
