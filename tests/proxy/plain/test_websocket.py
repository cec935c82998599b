"""The plain listener passes what the other does: websocket."""

from tests.proxy.recording.test_websocket import *  # noqa: F403 - each test and fixture of that module
