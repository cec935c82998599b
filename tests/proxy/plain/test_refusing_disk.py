"""The plain listener passes what the other does: refusing disk."""

from tests.proxy.test_refusing_disk import *  # noqa: F403 - each test and fixture of that module
