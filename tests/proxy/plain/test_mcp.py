"""The plain listener passes what the other does: mcp."""

from tests.proxy.test_mcp import *  # noqa: F403 - each test and fixture of that module
