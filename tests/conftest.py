"""Settings of every test.

Property tests draw the same examples in each run of `make test`, so that its result depends on the
code alone. `make explore` draws new ones and prints what it finds as an example to add.
"""

import signal

from hypothesis import HealthCheck, settings

# A program that was started to outlive its terminal ignores SIGHUP, and so do all that it starts.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


# Shared machines are slow at times; how long an example takes is not what these tests are about.
ANY_PACE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", ANY_PACE, derandomize=True)
settings.register_profile("explore", ANY_PACE, print_blob=True)
settings.load_profile("fixed")
