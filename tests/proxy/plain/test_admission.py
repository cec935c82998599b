"""The plain listener passes what the other does: admission."""

from tests.proxy.test_admission import *  # noqa: F403 - each test and fixture of that module
