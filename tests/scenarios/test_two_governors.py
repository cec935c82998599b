"""Several governors on one lake, killed at random, on a disk that fills up: each record ends there once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lakehouse.test_full_disk import ALONE, ROOT, can_mount


@pytest.mark.slow
def test_two_governors_that_die_again_and_again_lose_and_double_nothing(tmp_path: Path) -> None:
    small = can_mount(tmp_path)
    program = [sys.executable, "-m", "tests.headrace.two_governors", str(tmp_path), "7"]
    run = [*(ALONE if small else ()), *program, "small" if small else "large"]
    done = subprocess.run(run, cwd=ROOT, check=False, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["deaths"] >= 3
