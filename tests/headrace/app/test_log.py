"""Lines of a process whose standard error is a file have their time, at a terminal and for journald not."""

import os
import re
import subprocess
import sys

import pytest

from headrace.app.log import log

TIMED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (said|warned)")
BOTH = (
    "import logging; from headrace.app.log import log, start_log; start_log(); "
    "log('said'); logging.getLogger('proxy').warning('warned')"
)


def test_a_file_gets_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    done = subprocess.run([sys.executable, "-c", BOTH], capture_output=True, text=True, check=True)
    assert [bool(TIMED.fullmatch(line)) for line in done.stderr.splitlines()] == [True, True]


def test_a_terminal_and_journald_do_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    log("said")
    monkeypatch.delenv("JOURNAL_STREAM")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    log("said")
    assert capsys.readouterr().err.split() == ["said", "said"]


FORGED = "gone\n2026-01-01 00:00:00 all is well\r\x1b[2K\u2028\u202e"


@pytest.mark.parametrize("journal", ["", "8:1"], ids=["file", "journald"])
def test_nobody_writes_a_line_of_his_own(journal: str) -> None:
    both = (
        "import logging; from headrace.app.log import log, start_log; start_log(); "
        f"log({FORGED!r}); logging.getLogger('proxy').warning('%s', {FORGED!r})"
    )
    environment = {**os.environ, "JOURNAL_STREAM": journal}
    if not journal:
        del environment["JOURNAL_STREAM"]
    done = subprocess.run(
        [sys.executable, "-c", both], capture_output=True, check=True, env=environment
    )
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.endswith(r"gone\n2026-01-01 00:00:00 all is well\x0d\x1b[2K\u2028\u202e")
