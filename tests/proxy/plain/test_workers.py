"""The plain listener passes what the other does: workers."""

from tests.proxy.test_workers import *  # noqa: F403 - each test and fixture of that module
