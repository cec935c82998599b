"""The plain listener passes what the other does: sdks."""

from tests.interop.clients.test_sdks import *  # noqa: F403 - each test and fixture of that module
