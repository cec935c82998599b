"""A disk that is really full: an append is refused, nothing is lost, and the next one is whole."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALONE = ["unshare", "--user", "--map-root-user", "--mount"]
"""A mount namespace of its own, in which anybody may mount."""


def can_mount(folder: Path) -> bool:
    tried = [*ALONE, "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    try:
        return subprocess.run(tried, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_batches_survive_a_full_disk(tmp_path: Path) -> None:
    if not can_mount(tmp_path):
        pytest.skip("this machine lets nobody mount in a namespace of one's own")
    run = [*ALONE, sys.executable, "-m", "tests.lakehouse.full_disk", str(tmp_path)]
    done = subprocess.run(run, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
