"""The plain listener passes what the other does: endpoints."""

from tests.proxy.api.test_endpoints import *  # noqa: F403 - each test and fixture of that module
