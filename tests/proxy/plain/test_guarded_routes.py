"""The plain listener passes what the other does: guarded routes."""

from tests.proxy.guard.test_route import *  # noqa: F403 - each test and fixture of that module
