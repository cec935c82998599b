"""The environment of other formats' validators, and a way to run programs in it."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "tests" / "interop" / "formats"


@pytest.fixture(scope="session")
def python() -> str:
    """Return the Python of the environment."""
    made = subprocess.run(
        [ROOT / "scripts" / "test-environment", "formats"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return str(ROOT / made.stdout.strip())


def run(python: str, program: str, *arguments: str, given: str = "") -> str:
    done = subprocess.run(
        [python, str(FOLDER / program), *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
