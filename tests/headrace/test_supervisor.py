"""The supervisor restarts what dies and ends when told to."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import signal
import sys
from pathlib import Path

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it
import headrace.supervisor as supervisor

supervisor._RESTART_SECONDS = (0.1,)
supervisor.headrace_command = lambda arguments: [sys.executable, "-c", *arguments]
folder = Path(sys.argv[1])
program = supervisor.Program("child", (sys.argv[2], str(folder / "starts")), folder / "child.log")
supervisor.Supervisor([program], report=lambda text: print(text, flush=True)).run(
    is_ready=lambda: True, announce=lambda: print("ready", flush=True)
)
"""

DIES = "import sys; open(sys.argv[1], 'a').write('x')"
STAYS = "import sys, time; open(sys.argv[1], 'a').write('x'); time.sleep(600)"
REFUSES = "import sys; print('headrace: no such key', file=sys.stderr); sys.exit(2)"


def start(folder: Path, child: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), child],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def starts(folder: Path) -> int:
    file = folder / "starts"
    return len(file.read_text(encoding="ascii")) if file.exists() else 0


def wait_for(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 20
    while starts(folder) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_program_that_dies_is_started_again(tmp_path: Path) -> None:
    process = start(tmp_path, DIES)
    wait_for(tmp_path, 3)
    process.terminate()
    output, _ = process.communicate(timeout=20)
    assert "starting it again" in output
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_or_a_closed_terminal_ends_the_programs_too(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = start(tmp_path, STAYS)
    wait_for(tmp_path, 1)
    process.send_signal(number)
    process.communicate(timeout=20)
    listing = subprocess.run(
        ["ps", "-eo", "args"], capture_output=True, text=True, check=True
    ).stdout
    assert str(tmp_path / "starts") not in listing
    assert (tmp_path / "child.log").exists()


def test_a_program_that_refuses_its_settings_ends_it_all(tmp_path: Path) -> None:
    process = start(tmp_path, REFUSES)
    _, errors = process.communicate(timeout=20)
    assert process.returncode != 0
    assert "child: no such key" in errors
