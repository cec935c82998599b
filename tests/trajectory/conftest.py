"""Settings of the trajectory tests."""

from hypothesis import settings

# Shared machines are slow at times; how long an example takes is not what these tests are about.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")
