"""The plain listener passes what the other does: faults."""

from tests.proxy.test_faults import *  # noqa: F403 - each test and fixture of that module
