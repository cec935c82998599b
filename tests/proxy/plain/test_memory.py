"""The plain listener passes what the other does: memory."""

from tests.proxy.test_memory import *  # noqa: F403 - each test and fixture of that module
