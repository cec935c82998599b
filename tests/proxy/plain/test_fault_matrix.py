"""The plain listener passes what the other does: fault matrix."""

from tests.proxy.test_fault_matrix import *  # noqa: F403 - each test and fixture of that module
