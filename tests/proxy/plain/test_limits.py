"""The plain listener passes what the other does: limits."""

from tests.proxy.clients.test_limits import *  # noqa: F403 - each test and fixture of that module
