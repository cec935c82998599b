"""The plain listener passes what the other does: telemetry."""

from tests.proxy.telemetry.test_spans import *  # noqa: F403 - each test and fixture of that module
