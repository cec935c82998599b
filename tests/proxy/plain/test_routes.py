"""The plain listener passes what the other does: routes."""

from tests.proxy.test_routes import *  # noqa: F403 - each test and fixture of that module
