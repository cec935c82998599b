"""The plain listener passes what the other does: pins."""

from tests.proxy.routes.test_pins import *  # noqa: F403 - each test and fixture of that module
