"""The models of this checkout's practice: each made once, whatever the number of test processes."""

import fcntl
from pathlib import Path

from examples.practice.model import BASE, Lesson, ensure_model
from headrace.cli.demo import DEMO_HOME

MAKING_SECONDS = 1800
"""The model takes minutes of processor time: on a machine that others use, many times that."""


def demo_model(lesson: Lesson = BASE) -> Path:
    """Return the model's folder; who comes while another process makes it waits for that one.

    ``make demo`` finds the base model there, or made it there by the same code.
    """
    folder = Path(__file__).parents[2] / DEMO_HOME / "practice"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".making.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return ensure_model(folder, seed=0, lesson=lesson)
