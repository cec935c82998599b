"""The prompt of ``headrace sql``, used through a terminal as a person does."""

import os
import pty
import re
import select
import sys
import time
from pathlib import Path

import pytest

from headrace.cli.sql import Completer
from lakehouse.lake import Lake
from tests.lakehouse import make

TABLES = {"steps": ("step_id", "started_at"), "signals": ("name", "value")}


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        ("select * from s", "s", ["signals", "steps"]),
        ("select step_id from steps where st", "st", ["started_at", "step_id", "steps"]),
        ("select steps.ste", "steps.ste", ["steps.step_id"]),
        ("SEL", "SEL", ["SELECT"]),
        ("select val", "val", ["value"]),
        (".sch", ".sch", [".schema"]),
        (".schema st", "st", ["steps"]),
        ("select nothing", "nothing", []),
    ],
)
def test_what_tab_offers(line: str, text: str, expected: list[str]) -> None:
    assert Completer(TABLES, (".schema", ".tables")).matches(text, line) == expected


class Terminal:
    """A terminal with ``headrace sql`` in it."""

    def __init__(self, home: Path) -> None:
        self.pid, self._end = pty.fork()
        if self.pid == 0:
            os.environ.update({"HEADRACE_HOME": str(home), "TERM": "dumb", "COLUMNS": "120"})
            os.execv(  # noqa: S606 - our own program
                sys.executable, [sys.executable, "-P", "-m", "headrace", "sql"]
            )
        self.seen = ""

    def type(self, text: str) -> None:
        """Type."""
        os.write(self._end, text.encode())

    def expect(self, pattern: str, seconds: float = 40) -> str:
        """Wait until the screen shows ``pattern`` after what was expected before."""
        until = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen, re.DOTALL)):
            left = until - time.monotonic()
            ready, _, _ = select.select([self._end], [], [], max(0.0, left))
            assert ready, f"{pattern!r} did not come; the screen: {self.seen!r}"
            try:
                self.seen += os.read(self._end, 65536).decode("utf-8", "replace")
            except OSError:
                raise AssertionError(f"it ended; the screen: {self.seen!r}") from None
        text = self.seen[: found.end()]
        self.seen = self.seen[found.end() :]
        return text

    def leave(self) -> int:
        """Type Ctrl-D and return the exit code."""
        self.type("\x04")
        _, status = os.waitpid(self.pid, 0)
        os.close(self._end)
        return os.waitstatus_to_exitcode(status)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_session_at_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).resolve().parents[3])
    home = tmp_path / "home"
    Lake.open(str(home / "lake")).append(make.batch("t1"), app_id="a", version=0)
    terminal = Terminal(home)
    terminal.expect("headrace> ")
    terminal.type("select count(*) as n\n")
    terminal.expect(r"\.\.\.> ")
    terminal.type("from trajectorie\t;\n")  # Tab completes the view
    assert "trajectories" in terminal.expect(r"1 rows, .*headrace> ")
    terminal.type("select nosuch;\n")
    terminal.expect("nosuch.*headrace> ")
    terminal.type(".format jsonl\n")
    terminal.expect("headrace> ")
    for name in ("csv", "jsonl"):
        terminal.type(f".format {name}\n")
        terminal.expect("headrace> ")
        terminal.type("select chr(27) || '[31mred' || chr(155) || 'ä' as loud;\n")
        shown = terminal.expect(r"red.*red[^\n]*ä.*headrace> ")
        assert "\x1b[31mred" not in shown
        assert "\x9b" not in shown
    terminal.type(".as-of 2020-01-01\n")
    terminal.expect("headrace> ")
    terminal.type("select count(*) as earlier from steps;\n")
    terminal.expect(r'\{"earlier": 0\}.*headrace> ')
    terminal.type("select sum(a.range*b.range) from range(10000000) a, range(10000000) b;\n")
    terminal.expect(r"b;\r?\n")  # from here on Ctrl-C meets the query
    time.sleep(1.5)
    terminal.type("\x03")  # Ctrl-C ends the query, not the prompt
    terminal.expect("interrupted.*headrace> ")
    terminal.type("\x1b[A")  # the arrow up brings the last query back
    terminal.expect("range")
    terminal.type("\x15")  # Ctrl-U empties the line, on which Ctrl-D then leaves
    assert terminal.leave() == 0
    history = home / "sql_history"
    assert "nosuch" in history.read_text(encoding="utf-8")
    assert history.stat().st_mode & 0o777 == 0o600
