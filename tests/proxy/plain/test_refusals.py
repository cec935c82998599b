"""The plain listener passes what the other does: refusals."""

from tests.proxy.test_refusals import *  # noqa: F403 - each test and fixture of that module
