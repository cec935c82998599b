"""Settings of every test.

Property tests draw the same examples in each run of `make test`, so that its result depends on the
code alone. `make explore` draws new ones and prints what it finds as an example to add.
"""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

# A program that was started to outlive its terminal ignores SIGHUP, and so do all that it starts.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# One that was started in the background of a script ignores SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test outlives a loss of power (tests/lakehouse/power.py plays one), so none waits for a disk: that
# of a lake asks for hundreds of syncs. A descriptor that is closed is refused as ever.
os.fsync = os.fstat  # type: ignore[assignment]


# Shared machines are slow at times; how long an example takes is not what these tests are about.
ANY_PACE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", ANY_PACE, derandomize=True)
settings.register_profile("explore", ANY_PACE, print_blob=True)
settings.load_profile("fixed")


def pytest_configure(config: pytest.Config) -> None:
    """Let nothing but the test decide what the profile "fixed" draws.

    Hypothesis also draws constants of our modules, of those that are loaded by then: which ones these
    are depends on the tests that the same process ran before. No setting turns that off.
    """
    if config.getoption("--hypothesis-profile") in (None, "fixed"):
        providers._get_local_constants = Constants
