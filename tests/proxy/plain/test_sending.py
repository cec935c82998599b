"""The plain listener passes what the other does: sending."""

from tests.proxy.test_sending import *  # noqa: F403 - each test and fixture of that module
