"""What every command shares: the options, the application context, and how errors end."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from types import FrameType
from typing import Annotated

import typer

from headrace.app.output import note
from headrace.app.setting_sources import unknown_variables
from trajectory.errors import ConfigurationError

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of a table.", rich_help_panel="Output")
]
EngineOption = Annotated[
    str | None,
    typer.Option("--engine", help="Where the heavy work runs: local, or ray (settings engine.*)."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and a closed terminal end the block as Ctrl-C does, so that it cleans up."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # asked again, it is not disturbed at cleaning up
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM, signal.SIGHUP]
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone.

    Raises:
        ConfigurationError: not at a terminal and ``--yes`` was not given.
        typer.Abort: the person said no.
    """
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError("this cannot be undone; give --yes when not at a terminal.")
    typer.confirm(question, abort=True)


def days_until(day: str | None, days: int) -> tuple[datetime, datetime]:
    """Return begin and end of the UTC days that end with ``day``; by default with yesterday.

    Raises:
        ConfigurationError: it is no day.
    """
    try:
        last = date.fromisoformat(day) if day else datetime.now(UTC).date() - timedelta(days=1)
    except ValueError:
        raise ConfigurationError(f"--day {day}: not a day; write 2026-05-31.") from None
    end = datetime.combine(last + timedelta(days=1), time(), UTC)
    return end - timedelta(days=days), end


def nothing_stored(until: datetime) -> str:
    """Return what is said where no step was stored in the days before ``until``."""
    last = until.date() - timedelta(days=1)
    return f"nothing was stored in the days up to {last}; --day names another"


def note_mistyped_variables() -> None:
    """Say which ``HEADRACE_…`` variables look like a setting and are none."""
    for name, nearest in unknown_variables().items():
        if nearest is not None:
            note(f"{name} is not a setting and does nothing; did you mean {nearest}?")
