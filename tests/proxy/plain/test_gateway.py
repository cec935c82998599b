"""The plain listener passes what the other does: gateway."""

from tests.proxy.test_gateway import *  # noqa: F403 - each test and fixture of that module
