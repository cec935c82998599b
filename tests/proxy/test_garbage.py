"""Garbage: what was there at the start is left alone while the gateway runs, and only then."""

import subprocess
import sys

SCRIPT = """
import gc
from proxy.gateway import THRESHOLDS, short_pauses
before = gc.get_threshold()
frozen = gc.get_freeze_count()  # Python 3.12 begins with some
with short_pauses(enabled=False):
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, frozen)
with short_pauses(enabled=True):
    assert gc.get_threshold() == THRESHOLDS
    assert gc.get_freeze_count() > 1000
    seen = []
    gc.callbacks.append(lambda phase, about: seen.append(about["generation"]))
    kept = [[] for _ in range(20_000)]
    assert 1 in seen
assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
"""


def test_pauses_are_short_while_the_gateway_runs() -> None:
    # In a process of its own: a freeze would hold all objects of the other tests.
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
