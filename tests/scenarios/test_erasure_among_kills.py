"""Erasures beside governing, compaction and substrates, all killed at random: nobody erased is left anywhere."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_whoever_dies_the_erased_are_gone_and_the_others_are_there_once(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.headrace.erasure_among_kills", str(tmp_path), "3"]
    done = subprocess.run(
        program, cwd=ROOT, check=False, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["deaths"] >= 6
