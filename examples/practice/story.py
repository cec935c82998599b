"""How the demo speaks: chapters, questions in SQL, and the last table."""

import io
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from headrace.app.output import cell, printable
from train.evaluation.intervals import Interval


@dataclass(frozen=True, slots=True)
class RuleFound:
    """What came of a house rule that nobody told the agents."""

    decision: str
    artifact: str
    success_before: float
    success_before_ci: tuple[float, float]
    success_after: float
    success_after_ci: tuple[float, float]
    gain_ci_low: float
    sessions_until_live: int
    """Of all clients, from the night on."""
    human_actions: int
    """Between the first failure and the better service, by the audit log."""
    seconds_until_live: float
    """From the first failure on."""


@dataclass(frozen=True, slots=True)
class Rung:
    """What one recipe of the night made of the model that it started from, at held-out tasks."""

    recipe: str
    before: Interval
    after: Interval
    gain: Interval
    model: str | None
    """That the gate let through, as NAME@VERSION; None: it refused."""


@dataclass(slots=True)
class Result:
    """What the demo measured; the last line of ``--json``."""

    seed: int
    exchanges_sent: int = 0
    captured_lost: int = 0
    stored_duplicates: int = 0
    dispositions: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    planted: int = 0
    planted_found_at_rest: int = 0
    files_scanned: int = 0
    bytes_scanned: int = 0
    exact_tokens: int | None = None
    """Steps whose prompt and answer the lake keeps as the engine's own token ids; None: it gives none."""
    rungs: list[Rung] = field(default_factory=list)
    """One for each recipe of the night, in order; each starts from what serves."""
    control_success: float | None = None
    """Of the base after the same training on the sessions that failed; None: too few did."""
    control_ci: tuple[float, float] | None = None
    fresh_sessions: int = 0
    fresh_success: float = 0.0
    day_success: float = 0.0
    rule: RuleFound | None = None
    """None: real providers answered, who have no model that the demo made; or none went live."""
    rule_missed: str | None = None
    """Why no facts of the night went live."""
    seconds: float = 0.0

    @property
    def failures(self) -> list[str]:
        """What the demo promised and did not hold."""
        checks = {
            f"{self.captured_lost} exchanges were lost": self.captured_lost == 0,
            f"{self.stored_duplicates} rows are doubled": self.stored_duplicates == 0,
            f"{self.planted_found_at_rest} planted values rest in clear": self.planted_found_at_rest
            == 0,
            "the lake has no exact tokens": self.exact_tokens != 0,
            "no recipe of the night is shown to have made a better model": any(
                rung.model is not None and rung.gain.low > 0 for rung in self.rungs
            ),
            "fresh sessions do not succeed more often than before": self.fresh_success
            > self.day_success,
            "the facts that the night drew are not shown to be better than none": self.rule is None
            or self.rule.gain_ci_low > 0,
            "no facts of the night went live": self.rule_missed is None,
            "people had to act before the better service": self.rule is None
            or self.rule.human_actions == 0,
        }
        return [text for text, holds in checks.items() if not holds]


class Story:
    """Prints the chapters; with ``--json`` they go to standard error."""

    def __init__(self, *, as_json: bool) -> None:
        width = None if sys.stdout.isatty() else 110
        stream = sys.stderr if as_json else sys.stdout
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
        self.console = Console(file=stream, highlight=False, width=width)
        self._number = 0
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the story began."""
        return time.monotonic() - self._started

    def chapter(self, title: str) -> None:
        """Begin the next chapter."""
        self._number += 1
        self.console.print(
            f"\n[bold cyan]{self._number}. {title}[/] [dim]({self.seconds:.0f} s)[/]"
        )

    def say(self, text: str) -> None:
        """Print one line of the story."""
        self.console.print(Padding(text, (0, 0, 0, 3)))

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show on a terminal that something is under way, and for how long."""
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        bar = Progress(
            *columns, console=self.console, transient=True, disable=not self.console.is_terminal
        )
        with bar:
            bar.add_task(f"[dim]{what}[/]", total=None)
            yield

    def table(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Print a few rows."""
        if not rows:
            self.console.print("   [dim](nothing)[/]")
            return
        table = Table(show_edge=False, pad_edge=False, header_style="dim")
        for name in rows[0]:
            numbers = all(isinstance(row[name], int | float | None) for row in rows)
            table.add_column(name, justify="right" if numbers else "left", overflow="fold")
        for row in rows[:8]:
            table.add_row(*(Text(printable(cell(value))) for value in row.values()))
        self.console.print(Padding(table, (0, 0, 0, 3)))

    def facts(self, facts: Mapping[str, str]) -> None:
        """Print a few named texts, a line for each."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, text in facts.items():
            grid.add_row(name, Text(printable(text)))
        self.console.print(Padding(grid, (0, 0, 0, 3)))

    def last_table(self, result: Result) -> None:
        """Print what was measured."""
        table = Table(title="What this run measured", title_justify="left", show_header=False)
        table.add_column(style="bold")
        table.add_column(justify="right")
        for name, text in _lines(result):
            table.add_row(name, text)
        self.console.print(table)


def _lines(result: Result) -> list[tuple[str, str]]:
    exact = (
        []
        if result.exact_tokens is None
        else [("steps with the engine's exact tokens", f"{result.exact_tokens:,}")]
    )
    control = [] if result.control_ci is None else [_control(result, result.control_ci)]
    lines = [
        ("exchanges sent by the agents", f"{result.exchanges_sent:,}"),
        ("lost by capture", f"{result.captured_lost:,}"),
        ("doubled in the lake", f"{result.stored_duplicates:,}"),
    ]
    lines += [(f"  {name}", f"{count:,}") for name, count in result.dispositions.items()]
    lines += [(f"    {reason}", f"{count:,}") for reason, count in result.left_out.items()]
    return [
        *lines,
        ("planted personal values", f"{result.planted:,}"),
        (
            f"found at rest in {result.files_scanned:,} files ({result.bytes_scanned / 1e6:,.0f} MB)",
            f"{result.planted_found_at_rest:,}",
        ),
        *exact,
        *_rungs(result.rungs),
        *control,
        ("sessions of the day", f"{result.day_success:.0%}"),
        (
            f"{result.fresh_sessions} fresh sessions through the gateway",
            f"{result.fresh_success:.0%}",
        ),
        *([] if result.rule is None else _rule(result.rule)),
        ("seconds", f"{result.seconds:.0f}"),
    ]


def _rungs(rungs: Sequence[Rung]) -> list[tuple[str, str]]:
    lines = [("held-out tasks, base model", _share(rung.before)) for rung in rungs[:1]]
    for rung in rungs:
        gain = rung.gain
        lines.append((f"  after {rung.recipe}", _share(rung.after)))
        lines.append(
            ("    its own gain", f"{gain.estimate:+.0%}  [{gain.low:+.0%}, {gain.high:+.0%}]")
        )
    return lines


def _share(found: Interval) -> str:
    return f"{found.estimate:.0%}  [{found.low:.0%}, {found.high:.0%}]"


def _rule(found: RuleFound) -> list[tuple[str, str]]:
    before, after = found.success_before_ci, found.success_after_ci
    return [
        (
            "orders by three clients, a rule untold",
            f"{found.success_before:.0%}  [{before[0]:.0%}, {before[1]:.0%}]",
        ),
        (
            f"the same orders with {found.artifact}",
            f"{found.success_after:.0%}  [{after[0]:.0%}, {after[1]:.0%}]",
        ),
        ("sessions on trial until it was live", f"{found.sessions_until_live:,}"),
        (
            "human actions between the first failure and the better service",
            f"{found.human_actions:,}",
        ),
    ]


def _control(result: Result, interval: tuple[float, float]) -> tuple[str, str]:
    low, high = interval
    return (
        "control: base after the same on failed sessions",
        f"{result.control_success:.0%}  [{low:.0%}, {high:.0%}]",
    )


SUCCESS = "select model_served, judged, successes, success_rate, rate_low, rate_high from success_by_model"
QUESTIONS = {
    "How often do sessions succeed, by model version?": SUCCESS,
    "Which tools fail?": "select * from tool_failures",
    "What was redacted?": "select * from redactions_by_type order by redactions desc",
    "What was left out, and why?": "select * from left_out_by_reason order by exchanges desc",
}
