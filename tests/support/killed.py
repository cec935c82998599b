"""Processes that are killed in the middle of something."""

import subprocess
import sys
from pathlib import Path

_REPLACES = """
import os, signal, sys
from pathlib import Path
from trajectory.files import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(sys.argv[2].encode())
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_while_replacing(path: Path, text: str) -> Path:
    """Kill a process that replaces a file; return what it left."""
    before = {*path.parent.iterdir()}
    assert subprocess.run([sys.executable, "-c", _REPLACES, path, text], check=False).returncode
    (left,) = {*path.parent.iterdir()} - before
    assert left.read_text() == text
    return left
