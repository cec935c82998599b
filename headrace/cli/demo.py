"""``headrace demo``: the whole job on this machine, with real traffic and numbers."""

import importlib.util
import json
import os
import random
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headrace.app.context import AppContext
from headrace.cli.common import JsonOption, interruptible
from trajectory.errors import ConfigurationError

DEMO_HOME = Path(".headrace/demo")
"""Where a demo works that is told nothing else. Each demo empties its folder first."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="demo")(demo)


def demo(
    context: typer.Context,
    seed: Annotated[
        int | None, typer.Option(help="Seed of tasks, people and weights; by default a new one.")
    ] = None,
    short: Annotated[
        bool,
        typer.Option("--short", help="Four fifths of the sessions, a quarter of GRPO's steps."),
    ] = False,
    provider: Annotated[
        str, typer.Option(help="Who answers the agents: practice, openai or anthropic.")
    ] = "practice",
    model: Annotated[
        str | None,
        typer.Option(
            help="Model of a real provider; smollm2: SmolLM2-135M in place of the model made here."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Watch Headrace do its whole job: capture, govern, query, learn, serve, prove.

    Exit code 1 if a promise did not hold.
    """
    if importlib.util.find_spec("examples.practice") is None:
        raise ConfigurationError(
            "the practice floor is not part of the package: clone the repository and run `make demo`."
        )
    if provider not in ("practice", "openai", "anthropic"):
        raise ConfigurationError(
            f"unknown provider {provider!r}. Valid: practice, openai, anthropic."
        )
    if provider != "practice" and model is None:
        raise ConfigurationError(f"--provider {provider} needs --model NAME.")
    home = _folder(AppContext.of(context).home_option)
    from examples.practice.demo import SMOLLM2, Options, tell

    if provider == "practice" and model not in (None, SMOLLM2):
        raise ConfigurationError(
            f"the practice provider has no model {model!r}. Valid: {SMOLLM2}; without --model one is made here."
        )

    _forget_settings()
    with interruptible():
        result = tell(
            Options(
                seed=random.SystemRandom().randrange(10_000) if seed is None else seed,
                home=home.absolute(),
                short=short,
                as_json=as_json,
                provider=provider,
                model=model,
            )
        )
    if as_json:
        typer.echo(json.dumps(asdict(result)))
    if result.failures:
        raise typer.Exit(1)


def _folder(named: Path | None) -> Path:
    """Return the folder that the demo may empty: its own, or one in which there is nothing to lose.

    Raises:
        ConfigurationError: the folder that was named holds something.
    """
    if named is None:
        return DEMO_HOME
    if named.exists() and any(entry.name != "practice" for entry in named.iterdir()):
        raise ConfigurationError(
            f"{named} is not empty, and a demo deletes what lies in its home: name a new folder, or "
            "empty that one yourself."
        )
    return named


def _forget_settings() -> None:
    """Take the settings of another installation out of the environment: its lake, its policy, its keys."""
    for name in [name for name in os.environ if name.startswith("HEADRACE_")]:
        del os.environ[name]
