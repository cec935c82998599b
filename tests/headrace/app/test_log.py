"""Lines of a process whose standard error is a file have their time, at a terminal and for journald not."""

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
