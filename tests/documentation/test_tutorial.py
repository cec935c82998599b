"""The tutorial, run as a reader runs it: one shell for each of its terminals, in the page's order."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.practice.demo_model import MAKING_SECONDS, demo_model
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(
    r"^```console(?: title=\"(?P<terminal>[^\"]+)\")?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
READY = {"terminal 1": 9101, "terminal 2": 9102, "terminal 3": 8484}
"""Port that shows that the last command of a terminal, which does not end, is up."""


@dataclass(frozen=True)
class Command:
    """One command of the page and the lines of output that the page shows below it."""

    text: str
    shown: tuple[str, ...]


def commands(block: str) -> list[Command]:
    """Split a block at its prompts; lines up to a here document's or a quotation's end belong to it."""
    found: list[Command] = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        size = next(
            count for count in range(1, len(lines) + 1) if _is_complete("\n".join(lines[:count]))
        )
        found.append(Command("\n".join(lines[:size]), tuple(lines[size:])))
    return found


def _is_complete(text: str) -> bool:
    parsed = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    return parsed.returncode == 0 and not parsed.stderr and not text.endswith("\\")


def pattern(shown: str) -> re.Pattern[str]:
    """Return what a shown line means: ``…`` stands for anything, a space for any white space."""
    parts = [r"\s+".join(map(re.escape, part.split())) for part in shown.split("…")]
    return re.compile(r"[\s\S]*?".join(parts))


@contextmanager
def server(command: str, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    with (folder / "servers.log").open("ab") as log:
        process = subprocess.Popen(
            ["bash", "-ec", command],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_for(port: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(f"nothing listens on port {port}")


@pytest.mark.slow
@pytest.mark.timeout(2 * MAKING_SECONDS)
def test_every_command_of_the_tutorial_does_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "policies").symlink_to(ROOT / "policies")
    folder = tmp_path / "tutorial"
    folder.mkdir()
    # The first terminal would make the same model again, for minutes.
    made = demo_model()
    shutil.copytree(made, folder / "practice" / made.name)
    ports = {port: free_port() for port in (*READY.values(), 8485, 8486)}
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HEADRACE_GATEWAY_PORT": str(ports[8484]),
        "HEADRACE_GATEWAY_FORWARD_PORT": str(ports[8485]),
        "HEADRACE_GATEWAY_ADMIN_PORT": str(ports[8486]),
    }
    text = PAGE.read_text(encoding="utf-8")
    for written in (9101, 9102):
        text = text.replace(str(written), str(ports[written]))

    blocks = [(block["terminal"], commands(block["text"])) for block in BLOCK.finditer(text)]
    assert len(blocks) > 10

    state = folder / "shell-state.sh"
    state.touch()
    with ExitStack() as servers:
        for terminal, block in blocks:
            if terminal is None:  # setting up the checkout, which the tests stand in already
                continue
            if terminal in READY:
                script = "\n".join(command.text for command in block)
                servers.enter_context(server(script, folder, environment))
                wait_for(ports[READY[terminal]], 900)
                continue
            for command in block:
                # Variables that a command exports are there for the next one, as in one shell.
                script = f"set -eo pipefail\n. {state}\n{command.text}\nexport -p > {state}\n"
                done = subprocess.run(
                    ["bash", "-c", script],
                    cwd=folder,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=300,
                    check=False,
                )
                said = done.stdout + done.stderr
                assert done.returncode == 0, f"{command.text}\n{said}"
                for shown in command.shown:
                    assert pattern(shown).search(said), f"{command.text}\n{shown!r} not in\n{said}"
