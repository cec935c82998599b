"""The plain listener passes what the other does: hostile."""

from tests.proxy.test_hostile import *  # noqa: F403 - each test and fixture of that module
