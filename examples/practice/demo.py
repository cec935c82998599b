"""The story that ``make demo`` tells: real traffic, governed, queried, learned from, and proved."""

import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.practice.stage import Ports, Stage

TENANT = "acme"
TENANT_WITHOUT_CONSENT = "umbra"
TRAINING_PURPOSES = ("debug", "eval", "train_sft", "train_preference", "train_rl")


@dataclass(frozen=True, slots=True)
class Options:
    """What a person may choose."""

    seed: int
    home: Path
    short: bool = False
    as_json: bool = False
    provider: str = "practice"
    """practice | openai | anthropic: who answers the agents whose traffic is captured."""
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Fleet:
    """A group of agents with one client, one way in and one owner."""

    name: str
    client: str
    forward: bool
    tenant: str
    sessions: int


def fleets(options: Options) -> tuple[Fleet, ...]:
    """Return the agents of the day; a short demo has about half of them."""
    scale = 0.5 if options.short else 1.0

    def some(count: int) -> int:
        return max(4, round(count * scale))

    if options.provider == "openai":
        clients = ("openai-chat", "openai-responses", "openai-chat", "openai-chat")
    elif options.provider == "anthropic":
        clients = ("anthropic",) * 4
    else:
        clients = ("openai-chat", "openai-responses", "anthropic", "openai-chat")
    return (
        Fleet("chat", clients[0], False, TENANT, some(110)),
        Fleet("responses", clients[1], False, TENANT, some(60)),
        Fleet("messages", clients[2], True, TENANT, some(60)),
        Fleet("forward", clients[3], True, TENANT, some(60)),
        Fleet("no-consent", clients[0], False, TENANT_WITHOUT_CONSENT, some(24)),
    )


class Story:
    """Prints the chapters; with ``--json`` they go to standard error."""

    def __init__(self, *, as_json: bool) -> None:
        width = None if sys.stdout.isatty() else 110
        self.console = Console(stderr=as_json, highlight=False, width=width)
        self._number = 0
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the story began."""
        return time.monotonic() - self._started

    def chapter(self, title: str) -> None:
        """Begin the next chapter."""
        self._number += 1
        self.console.print(f"\n[bold cyan]{self._number}. {title}[/] [dim]({self.seconds:.0f} s)[/]")

    def say(self, text: str) -> None:
        """Print one line of the story."""
        self.console.print(f"   {text}")


def prepare_home(home: Path) -> None:
    """Empty the demo's own home folder, but keep the practice model that an earlier run made."""
    if home.exists():
        for entry in home.iterdir():
            if entry.name == "practice":
                continue
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    (home / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)


def base_urls(ports: Ports, *, forward: bool) -> Mapping[str, str]:
    """Return the provider addresses that an agent is given, through the gateway or the proxy."""
    if forward:
        provider = f"https://localhost:{ports.provider_tls}"
        return {"openai": f"{provider}/v1", "anthropic": provider}
    gateway = f"http://127.0.0.1:{ports.gateway}"
    return {"openai": f"{gateway}/openai/v1", "anthropic": f"{gateway}/anthropic"}


def sql_chapter(story: Story, stage: Stage) -> dict[str, list[dict[str, Any]]]:
    """Ask what a person would ask, showing each question; return the answers."""
    from headrace.render import cell
    from rich.table import Table

    answers: dict[str, list[dict[str, Any]]] = {}
    for question, query in QUESTIONS.items():
        rows: list[dict[str, Any]] = stage.headrace_json("sql", query)
        answers[question] = rows
        story.say(f'[bold]{question}[/]  [dim]headrace sql "{query}"[/]')
        table = Table(show_edge=False, pad_edge=False, header_style="dim")
        for name in rows[0] if rows else ():
            table.add_column(name)
        for row in rows[:8]:
            table.add_row(*(cell(value) for value in row.values()))
        story.console.print(table)
    return answers


QUESTIONS = {
    "How often do sessions succeed, by model version?": "select * from success_by_model",
    "Which tools fail?": "select * from tool_failures",
    "What was redacted?": "select * from redactions_by_type",
    "What was left out, and why?": "select * from left_out_by_reason",
}
