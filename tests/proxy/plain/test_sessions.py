"""The plain listener passes what the other does: session calls."""

from tests.proxy.api.test_sessions import *  # noqa: F403 - each test and fixture of that module
