"""Settings of every test."""

from hypothesis import HealthCheck, settings

# Shared machines are slow at times; how long an example takes is not what these tests are about.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")
