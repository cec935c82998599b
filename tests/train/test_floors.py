"""The training libraries' lowest versions that ``pyproject.toml`` allows are versions that work."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_recipe_trains_on_the_lowest_versions_that_are_allowed() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "check-floors"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert "every recipe trains on the lowest versions" in done.stdout
